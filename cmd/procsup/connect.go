package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/client"
)

// Exit codes of the verbs that talk to the daemon, design.md §8.
const (
	exitNoMatch  = 65  // ended before the match
	exitNoHandle = 66  // no such handle
	exitNoDaemon = 69  // and none could be started
	exitRefused  = 73  // busy, full, closed, conflict
	exitTimedOut = 75  // an observation, not the command
	exitCannot   = 126 // found, but cannot be executed
)

// remoteFlags are those of every verb that talks to the daemon.
func remoteFlags(more ...cli.Flag) []cli.Flag {
	return append(more,
		&cli.StringFlag{Name: "session", Aliases: []string{"S"}, Usage: "session of the handle (default: PROCSUP_SESSION)"},
		&cli.StringFlag{Name: "socket", Usage: "`PATH` of the daemon's socket (default: PROCSUP_SOCKET, else $XDG_RUNTIME_DIR/procsup/sock)"},
		&cli.StringFlag{Name: "state", Usage: "state `DIR` of the daemon (default: PROCSUP_STATE, else ~/.local/state/procsup)"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
	)
}

// verb makes a command that talks to the daemon.
func verb(name, usage, args, help string, action func(*cli.Context, *remote) error, flags ...cli.Flag) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: args, Description: help,
		OnUsageError: onUsageError, Flags: remoteFlags(flags...),
		HideHelpCommand: true, // a handle may be called help
		Action: func(c *cli.Context) error {
			r, err := connect(c)
			if err != nil {
				return err
			}
			defer r.Close()
			return action(c, r)
		},
	}
}

// A remote is the daemon as a verb sees it.
type remote struct {
	*client.Client
	socket, state string
	session       string
	verb          string
}

// connect finds out where the daemon is. It does not talk to it.
func connect(c *cli.Context) (*remote, error) {
	name := verbName(c)
	socket, err := platform.SocketPath(c.String("socket"))
	if err != nil {
		return nil, unusable("%s: %v", name, err)
	}
	state, err := platform.StateDir(c.String("state"))
	if err != nil && !errors.Is(err, platform.ErrNoStateDir) {
		return nil, unusable("%s: %v", name, err)
	}
	r := &remote{socket: socket, state: state, session: c.String("session"), verb: name}
	if r.session == "" {
		r.session = os.Getenv(sessionVar)
	}
	r.Client = client.New(client.Config{Socket: socket, State: state, Session: r.session, Token: os.Getenv(tokenVar)})
	return r, nil
}

// What a command of a session finds in its environment: the session, and the
// token that says so to the daemon.
const (
	sessionVar = "PROCSUP_SESSION"
	tokenVar   = "PROCSUP_TOKEN"
)

// verbName is what was typed: "wait", "session open".
func verbName(c *cli.Context) string { return strings.TrimPrefix(c.Command.FullName(), c.App.Name+" ") }

// do makes a call. If there is no daemon it starts one, once.
func (r *remote) do(call func() error) error {
	err := call()
	if errors.Is(err, client.ErrNoDaemon) && !errors.Is(err, handles.ErrOutcomeUnknown) {
		serr := startDaemon(r.socket, r.state)
		err = call() // also then: another verb's daemon may be the reason
		if serr != nil && errors.Is(err, client.ErrNoDaemon) {
			return &exitError{code: exitNoDaemon, msg: r.verb + ": " + serr.Error()}
		}
	}
	return r.explain(err)
}

// explain gives an error of the daemon or the client its exit code.
func (r *remote) explain(err error) error {
	var e *handles.Error
	var done *exitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &done):
		return err
	case errors.Is(err, client.ErrNoDaemon):
		return &exitError{code: exitNoDaemon, msg: r.verb + ": " + err.Error()}
	case errors.As(err, &e):
		msg := err.Error()
		if flag, ok := flagOf[e.ID]; ok && e.Code == handles.CodeInvalid {
			if rest, ok := strings.CutPrefix(msg, e.ID+":"); ok {
				msg = flag + ":" + rest
			}
		}
		return &exitError{code: codeOf(e.Code), msg: r.verb + ": " + msg}
	}
	return unusable("%s: %v", r.verb, err)
}

// flagOf are the flags for fields of a request that have another name there.
var flagOf = map[string]string{
	"tag": "--kind", "ready": "--ready", "ready_timeout_ms": "--ready-timeout", "watchdog_ms": "--watchdog", "bind_pid": "--bind-pid",
	"grace_ms": "--grace", "stop_signal": "--stop-signal", "notify_match": "--notify-match", "events": "--events", "lease": "--lease",
}

// codeOf is the exit code of an error code.
func codeOf(c handles.Code) int {
	switch c {
	case handles.CodeInvalid, handles.CodeConfig:
		return exitUsage
	case handles.CodeNotFound, handles.CodeAmbiguous:
		return exitNoHandle
	case handles.CodeStarting:
		return exitNoDaemon
	case handles.CodeTimeout:
		return exitTimedOut
	case handles.CodeUnknown, handles.CodeInternal, handles.CodeUnsupported:
		return exitProcsup
	}
	return exitRefused
}

// oneHandle is the only argument of a verb.
func oneHandle(c *cli.Context) (string, error) {
	switch c.NArg() {
	case 0:
		return "", usagef("%s: no handle given; procsup list shows them", c.Command.Name)
	case 1:
		return c.Args().First(), nil
	}
	return "", usagef("%s: one handle at a time, not %q", c.Command.Name, c.Args().Slice())
}

// noArguments refuses what stands behind a verb that takes nothing.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("%s: unexpected argument %q; see procsup %s --help", verbName(c), c.Args().First(), verbName(c))
	}
	return nil
}

// print writes a line of text, or with --json the value.
func (r *remote) print(c *cli.Context, v any, text string) error {
	if c.Bool("json") {
		return printJSON(c, v)
	}
	if text == "" {
		return nil
	}
	if _, err := fmt.Fprintln(c.App.Writer, text); err != nil {
		return unusable("%s: write: %v", r.verb, err)
	}
	return nil
}

// millisFlag reads a duration flag in milliseconds; nil when it is not given.
func millisFlag(c *cli.Context, name string) (*int64, error) {
	if !c.IsSet(name) {
		return nil, nil
	}
	d, err := parseDuration(c.String(name))
	if err != nil {
		return nil, usagef("%s: --%s: %v", verbName(c), name, err)
	}
	ms := d.Milliseconds()
	if d > 0 && ms == 0 {
		ms = 1 // 0 means none
	}
	return &ms, nil
}

// handleExit is the exit code that stands for the end of a run, and what to
// say about it: nothing where the code says it all.
func handleExit(r *handles.Record) (code int, say string) {
	switch r.Status {
	case handles.Completed:
		return 0, ""
	case handles.Lost, handles.Interrupted, handles.Cancelled:
		say = string(r.HandleID) + ": " + string(r.Status)
		if r.Error != "" {
			say += ": " + r.Error
		}
		return exitProcsup, say
	case handles.Killed:
		switch r.Cause {
		case handles.CauseDeadline, handles.CauseNoOutput:
			return exitDeadline, ""
		case handles.CauseAborted:
			return exitNoMatch, r.Error
		}
	}
	switch {
	case r.SpawnError != nil:
		return spawnExit(r), r.Error
	case r.ExitCode != nil:
		return *r.ExitCode, ""
	}
	if sig, err := platform.ParseSignal(r.Signal); err == nil {
		return 128 + int(sig), ""
	}
	return exitProcsup, string(r.HandleID) + ": how it ended is unknown"
}

// spawnExit tells, as `procsup run` does, what is not there from what cannot
// be executed.
func spawnExit(r *handles.Record) int {
	e := r.SpawnError
	switch {
	case e.Step != "lookup" && e.Step != "exec":
		return exitProcsup
	case e.Errno != "ENOENT" && e.Errno != "ENOTDIR":
		return exitCannot
	case len(r.Command) > 0 && base(e.Path) != base(r.Command[0]): // its interpreter
		return exitCannot
	}
	return exitNotFound
}

// ended is the error that ends procsup as a run ended.
func ended(r *handles.Record) error {
	code, say := handleExit(r)
	if code == 0 && say == "" {
		return nil
	}
	return &exitError{code: code, msg: say}
}

// outcomeText says in a few words how a run stands.
func outcomeText(r *handles.Record) string {
	s := string(r.Status)
	if r.Cause != "" {
		s += " by " + string(r.Cause)
	}
	switch {
	case !r.Status.Terminal():
	case r.SpawnError != nil:
		s += ", not started"
	case r.ExitCode != nil:
		s += ", exit " + strconv.Itoa(*r.ExitCode)
	case r.Signal != "":
		s += ", signal " + r.Signal
	}
	return s
}
