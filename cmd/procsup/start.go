package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/wire"
)

const startHelp = `Starts CMD in the background under the daemon, which is started if need be, and
prints its handle id. CMD gets the environment, directory and umask of the
caller; its stdin is /dev/null unless --stdin says otherwise; its output is
kept and read with procsup logs. It lives until it ends, is cancelled, or its
session ends: not with the caller, the terminal or the daemon's supervisor.

Every verb takes the id, a unique prefix of it, or the --name.

--ready CONDITION says when it is ready; procsup wait-ready waits for that. One that
is not ready within --ready-timeout is ended as start_aborted. Conditions:
   output:TEXT          TEXT was written, as wait-output has it
   notify               it sent READY=1, sd_notify(3); NOTIFY_SOCKET is set for it
   fd:N                 it wrote a line to descriptor N (s6, Xvfb -displayfd N)
   tcp:HOST:PORT  unix:PATH|@NAME  http:URL[=STATUS]  file:PATH  exec:CMD
                        as in procsup await; relative paths are from its directory

Exit codes: 0 started (with --background-after: or ended well) · 126 cannot be
executed · 127 not found · 64 usage · 69 no daemon · 73 refused · 125 procsup
itself. With --background-after, the command's own code if it ended in time.

Examples:
   h=$(procsup start -- ./server --port 0)
   procsup start --name db --lease service -- postgres -D data
   procsup start --deadline 10m --max-output 100M -- ./soak-test.sh
   procsup start --background-after 5s --json -- make | jq -r .status
   procsup start --name web --ready tcp:localhost:8080 --ready-timeout 10s -- ./server
   procsup start --ready notify -- redis-server --supervised systemd
   h=$(procsup start --stdin pipe -- python3 -i); echo 'print(6*7)' | procsup send $h`

func startCommand() *cli.Command {
	return verb("start", "start a command in the background and print its handle id", "[--] CMD [ARG…]", startHelp, doStart, startFlags()...)
}

// startFlags are those of every verb that starts a command under the daemon.
func startFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "name", Usage: "`NAME` for the handle, unique among the live ones of its session"},
		&cli.StringFlag{Name: "kind", Usage: "`command`, test or build"},
		&cli.StringFlag{Name: "lease", Usage: "`awaited`: its end is owed to the session; service: it is not (default: service in the default session)"},
		&cli.StringFlag{Name: "background-after", Usage: "answer when it has ended, at most `D` later"},
		&cli.StringFlag{Name: "deadline", Usage: "end the tree after `D` (such as 90s, 10m; 0 = never)"},
		&cli.StringFlag{Name: "no-output-timeout", Usage: "end the tree when it wrote nothing for `D`"},
		&cli.StringFlag{Name: "grace", Usage: "at most `D` between the stop signal and KILL (default: 2s; 10s with --lease service)"},
		&cli.StringFlag{Name: "stop-signal", Usage: "`SIG` that asks the command to stop (default: TERM)"},
		&cli.StringFlag{Name: "leftover", Usage: "processes that outlive the command: `kill`, wait for or keep them"},
		&cli.StringFlag{Name: "containment", Usage: "`auto`, cgroup, tree or group; see procsup doctor"},
		&cli.StringFlag{Name: "dir", Usage: "run in `DIR`"},
		&cli.StringSliceFlag{Name: "env", Usage: "set `K=V` for the command (repeatable)"},
		&cli.StringFlag{Name: "env-mode", Usage: "`inherit`, minimal (PATH, HOME, USER, LANG, TERM …) or empty", Value: "inherit"},
		&cli.BoolFlag{Name: "no-store-env", Usage: "do not keep the environment in the journal; restart is refused then"},
		&cli.StringFlag{Name: "stdin", Usage: "`null`, pipe (see procsup send) or a file", Value: "null"},
		&cli.BoolFlag{Name: "merge", Usage: "keep stderr in stdout, in the order written"},
		&cli.StringFlag{Name: "max-output", Usage: "keep at most `SIZE` of each stream: the first 1M and the newest (default: 1G)"},
		&cli.StringFlag{Name: "scope", Usage: "in the open scope `G` of the session"},
		&cli.StringSliceFlag{Name: "notify-match", Usage: "a notice when the output has the text `PATTERN` for the first time (repeatable)"},
		&cli.IntFlag{Name: "events", Usage: "keep `N` events for a slow receiver of procsup events", DefaultText: "1024"},
		&cli.StringFlag{Name: "idempotency-key", Usage: "a second start with the same `KEY` gives the first answer again"},
		&cli.StringSliceFlag{Name: "ready", Usage: "it is ready when `CONDITION` holds (repeatable: all have to)"},
		&cli.StringFlag{Name: "ready-timeout", Usage: "end it if it is not ready within `D` (default: 90s; 0 = never)"},
		&cli.StringFlag{Name: "watchdog", Usage: "with --ready notify: WATCHDOG_USEC for it; end it when it does not say WATCHDOG=1 for `D`"},
	}
}

func doStart(c *cli.Context, r *remote) error {
	req, err := parseStart(c, r.session)
	if err != nil {
		return err
	}
	var a *wire.Started
	err = r.do(func() (err error) {
		a, err = r.Start(context.Background(), *req)
		return err
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c, a)
	} else {
		_, err = fmt.Fprintln(c.App.Writer, a.HandleID)
	}
	if err != nil {
		return unusable("start: write the handle id %s: %v", a.HandleID, err)
	}
	switch {
	case a.Record != nil && a.Record.Status.Terminal():
		if err := r.settle(a.SessionID, a.Batch, "delivered"); err != nil {
			return err
		}
		return ended(a.Record)
	case a.SpawnError != nil:
		return ended(&handles.Record{HandleID: a.HandleID, Status: a.Status, SpawnError: a.SpawnError, Error: a.Error, Command: req.Command})
	}
	return nil
}

// parseStart checks everything before anything happens.
func parseStart(c *cli.Context, session string) (*wire.Start, error) {
	return parseStartOf(c, session, c.Args().Slice())
}

func parseStartOf(c *cli.Context, session string, argv []string) (*wire.Start, error) {
	req := &wire.Start{
		Command: argv, Session: session, Name: c.String("name"), Tag: c.String("kind"), Lease: c.String("lease"),
		StopSignal: c.String("stop-signal"), Leftover: c.String("leftover"), Containment: c.String("containment"),
		Scope: c.String("scope"), NotifyMatch: c.StringSlice("notify-match"),
		Merge: c.Bool("merge"), NoStoreEnv: c.Bool("no-store-env"), Idempotency: c.String("idempotency-key"),
		Ready: c.StringSlice("ready"),
	}
	if len(req.Command) == 0 {
		return nil, usagef("start: no command given; try: procsup start -- CMD [ARG…]")
	}
	if req.Command[0] == "" {
		return nil, &exitError{code: exitNotFound, msg: "start: the command's name is empty"}
	}
	for _, f := range []func(*cli.Context, *wire.Start) error{startTimes, startWords, startEvents, startPlace, startStdin, startEnv} {
		if err := f(c, req); err != nil {
			return nil, err
		}
	}
	return req, nil
}

func startTimes(c *cli.Context, req *wire.Start) (err error) {
	for _, f := range []struct {
		name string
		to   *int64
	}{{"deadline", &req.DeadlineMS}, {"no-output-timeout", &req.NoOutputMS}, {"watchdog", &req.WatchdogMS}} {
		ms, err := millisFlag(c, f.name)
		if err != nil {
			return err
		}
		if ms != nil {
			*f.to = *ms
		}
	}
	if req.GraceMS, err = millisFlag(c, "grace"); err != nil {
		return err
	}
	if req.ReadyMS, err = millisFlag(c, "ready-timeout"); err != nil {
		return err
	}
	req.BackgroundMS, err = millisFlag(c, "background-after")
	return err
}

func startEvents(c *cli.Context, req *wire.Start) error {
	if req.Events = c.Int("events"); c.IsSet("events") && req.Events < 1 {
		return usagef("%s: --events: at least 1, not %d", verbName(c), req.Events)
	}
	return nil
}

func startWords(c *cli.Context, req *wire.Start) error {
	if _, err := pgroup.ParseLeftover(req.Leftover); err != nil {
		return usagef("%s: --leftover: %v", verbName(c), err)
	}
	if _, err := pgroup.ParseLevel(req.Containment); err != nil {
		return usagef("%s: --containment: %v", verbName(c), err)
	}
	if req.StopSignal != "" {
		if err := checkStopSignal(req.StopSignal); err != nil {
			return usagef("%s: --stop-signal: %v", verbName(c), err)
		}
	}
	if s := c.String("max-output"); s != "" {
		n, err := parseSize(s)
		if err != nil {
			return usagef("%s: --max-output: %v", verbName(c), err)
		}
		req.MaxOutput = n
	}
	return nil
}

// checkStopSignal refuses what does not ask a program to end.
func checkStopSignal(name string) error {
	sig, err := platform.ParseSignal(name)
	if err != nil {
		return err
	}
	switch n := platform.SignalName(sig); n {
	case "STOP", "CONT", "CHLD":
		return fmt.Errorf("%s does not ask a program to end", n)
	}
	return nil
}

// startPlace fills in where the command runs.
func startPlace(c *cli.Context, req *wire.Start) error {
	dir, err := filepath.Abs(c.String("dir")) // "" is the working directory
	if err != nil {
		return unusable("%s: the current directory is unknown: %v", verbName(c), err)
	}
	req.Dir = dir
	if st, err := os.Stat(dir); err != nil {
		return unusable("%s: --dir %s: %v", verbName(c), dir, reason(err))
	} else if !st.IsDir() {
		return unusable("%s: --dir %s: not a directory", verbName(c), dir)
	}
	if mask, ok := platform.Umask(); ok {
		req.Umask = &mask
	}
	return nil
}

// startStdin fills in what the command reads.
func startStdin(c *cli.Context, req *wire.Start) (err error) {
	req.Stdin = c.String("stdin")
	if req.Stdin != "null" && req.Stdin != "pipe" {
		if req.Stdin, err = filepath.Abs(req.Stdin); err != nil {
			return unusable("%s: --stdin: %v", verbName(c), err)
		}
		if st, err := os.Stat(req.Stdin); err == nil && st.Mode()&fs.ModeNamedPipe != 0 { // opening it would take its writer away
			return unusable("%s: --stdin %s: a FIFO would have the daemon wait for its writer; use --stdin pipe and procsup send", verbName(c), req.Stdin)
		}
		f, err := os.Open(req.Stdin)
		if err != nil {
			return unusable("%s: --stdin %s: %v", verbName(c), req.Stdin, reason(err))
		}
		f.Close()
	}
	return nil
}

// startEnv fills in the environment. What is not UTF-8 cannot be sent: it is
// left out, and that is said.
func startEnv(c *cli.Context, req *wire.Start) error {
	mode, set := c.String("env-mode"), c.StringSlice("env")
	if mode == "" {
		mode = "inherit"
	}
	if req.Session != "" && mode != "empty" { // in front: what the user sets wins
		set = append([]string{sessionVar + "=" + req.Session}, set...)
	}
	env, err := environment(os.Environ(), mode, set)
	if err != nil {
		return usagef("%s: %v", verbName(c), err)
	}
	req.Env = make([]string, 0, len(env))
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "": // no variable: programs ignore it
		case !utf8.ValidString(kv):
			fmt.Fprintf(c.App.ErrWriter, "procsup: "+verbName(c)+": the variable %q is not UTF-8 and is left out\n", name)
		default:
			req.Env = append(req.Env, kv)
		}
	}
	return nil
}
