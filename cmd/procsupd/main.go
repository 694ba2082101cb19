// Procsupd is the procsup daemon: a keeper that holds what must survive, and a
// supervisor that does the work and may be killed at any moment.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"time"

	"procsup/handles"
	"procsup/platform"
)

// supervisorVerb begins the supervisor process, which the keeper starts.
const supervisorVerb = "supervisor"

// keeperVerb begins a keeper in the place of another; the number of what it
// starts from is its last argument.
const keeperVerb = "keeper"

// Exit codes, design.md §8.
const (
	exitUsage   = 64
	exitNone    = 69
	exitRefused = 73
	exitProcsup = 125
)

// The main thread is for the main goroutine alone: the kernel gives it the
// orphans that this process adopts, and so its list of children, which is read
// at each end of a command, does not have all that run (design.md section 4).
func init() { runtime.LockOSThread() }

// tools are the verbs of procsup that need what procsup itself must not link;
// it executes procsupd for them.
var tools = map[string]func(args []string) int{
	"mcp":    mcpMain,
	lintVerb: func(args []string) int { return lintMain(args, os.Stdin, os.Stdout, os.Stderr) },
}

func main() {
	if err := platform.NeedFDs(2); err != nil { // Go's runtime takes two at its first timer, and dies without
		fmt.Fprintf(os.Stderr, "procsupd: %v\n", err)
		os.Exit(exitProcsup)
	}
	args := os.Args[1:]
	if len(args) > 0 && tools[args[0]] != nil {
		os.Exit(tools[args[0]](args[1:]))
	}
	if vetTool(args) {
		vetMain()
	}
	run := daemonMain
	if len(args) > 0 && args[0] == awaitVerb {
		os.Exit(awaitMain(args[1:]))
	}
	if len(args) > 0 && args[0] == supervisorVerb {
		args, run = args[1:], supervisorMain
	}
	if len(args) > 1 && args[0] == keeperVerb {
		estate, err := strconv.Atoi(args[len(args)-1])
		if err != nil {
			estate = -1
		}
		args, run = args[1:len(args)-1], func(o *options) error { return heirMain(o, estate) }
	}
	o, err := parse(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err == nil {
		err = run(o)
	}
	os.Exit(report(err, o))
}

// report says what went wrong, on stderr and to whoever waits for the daemon.
func report(err error, o *options) int {
	if err == nil {
		return 0
	}
	msg := "procsupd: " + err.Error()
	fmt.Fprintln(os.Stderr, msg)
	if o != nil {
		o.tell(msg)
	}
	return exitOf(err)
}

// exitOf is the exit code of an error.
func exitOf(err error) int {
	var use *usageError
	var he *handles.Error
	switch {
	case errors.As(err, &use):
		return exitUsage
	case errors.As(err, &he):
		return exitRefused
	}
	return exitProcsup
}

type usageError struct{ error }

// options are the flags of procsupd; the supervisor gets the same ones.
type options struct {
	socket, state string
	readyFD       int
	stop, replace bool
	status        bool
	sessionLimit  int
	keepRecords   time.Duration
	ready         *os.File // nil: nobody waits
}

const usage = `Usage: procsupd [flags]      (or: procsup daemon [flags])

Runs the procsup daemon in front, for service managers and containers. Verbs of
procsup that need a daemon start one by themselves.

Examples:
  procsup daemon
  procsup daemon --socket /run/user/1000/procsup/sock --state ~/.local/state/procsup
  procsup daemon --replace     restart it with the binary that is installed now
  procsup daemon --stop        end it; commands are ended within their grace
  procsup daemon --status

Signals: TERM and INT end it within a bound, with exit code 0; USR2 replaces its
supervisor, as --replace does. HUP does that too below a service manager
(NOTIFY_SOCKET is set), else it ends it.

A service of systemd (sd_notify, its watchdog and one passed unix socket are
understood; the keeper may be killed and its supervisor goes on as main process,
which only NotifyAccess=all lets it say):
  [Service]
  Type=notify
  NotifyAccess=all
  ExecStart=/usr/bin/procsup daemon
  ExecReload=/usr/bin/procsup daemon --replace
  KillMode=mixed
  Delegate=yes

Flags:
`

func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("procsupd", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.Usage = func() { fmt.Fprint(out, usage); fs.PrintDefaults() }
	fs.StringVar(&o.socket, "socket", "", "`path` of the socket (default: PROCSUP_SOCKET, $XDG_RUNTIME_DIR/procsup/sock, /tmp/procsup-UID/sock)")
	fs.StringVar(&o.state, "state", "", "state `directory` (default: PROCSUP_STATE, $XDG_STATE_HOME/procsup, ~/.local/state/procsup)")
	fs.IntVar(&o.readyFD, "ready-fd", -1, "write a line to this descriptor once the daemon answers")
	fs.BoolVar(&o.stop, "stop", false, "end the daemon of this state directory")
	fs.BoolVar(&o.replace, "replace", false, "restart its supervisor with the installed binary; commands live on")
	fs.BoolVar(&o.status, "status", false, "say whether one runs")
	fs.IntVar(&o.sessionLimit, "session-limit", 0, "live handles per session (0 = 1000)")
	fs.DurationVar(&o.keepRecords, "keep-records", 0, "keep records and output of what has ended for `D`, such as 24h (0 = 168h, negative = for ever)")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, &usageError{err}
	}
	if fs.NArg() > 0 {
		return nil, &usageError{fmt.Errorf("unexpected argument %q", fs.Arg(0))}
	}
	if o.readyFD >= 0 {
		o.ready = os.NewFile(uintptr(o.readyFD), "ready")
	}
	return o, nil
}

// paths are the flags of this daemon's processes.
func (o *options) paths() []string {
	return []string{"--socket", o.socket, "--state", o.state, "--session-limit", strconv.Itoa(o.sessionLimit), "--keep-records", o.keepRecords.String()}
}

// tell writes one line to whoever waits for the daemon, once.
func (o *options) tell(line string) {
	if o.ready == nil {
		return
	}
	fmt.Fprintln(o.ready, line)
	o.ready.Close()
	o.ready = nil
}
