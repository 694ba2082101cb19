package main

import (
	"github.com/urfave/cli/v2"

	"procsup/supervisor/wire"
)

const runHelp = `Runs CMD in a process group of its own and ends as it ended: the same exit
code, or death by the same signal. Standard streams, other descriptors, the
environment and signal dispositions are passed on untouched; the controlling
terminal is lent to the command. When CMD has ended, or procsup is told to stop
(INT, TERM, HUP, QUIT, the deadline), the whole tree is ended: the signal, TERM,
after the grace KILL. A second signal goes to the next step at once.

Servers that were first started inside a run (tmux, gpg-agent, gradle) are
leftovers and are ended with it; --leftover keep leaves them alone.

Other signals are passed on: those a terminal sends (TSTP, CONT, WINCH …) to the
command's group, USR1 and the like to the command alone.

With -S the command runs under the daemon, which is started if need be, as the
one parent run of a session: its streams are passed through, it ends with procsup,
and a restart of the daemon does not end it. INT, TERM, HUP and QUIT are its first
step there too; other signals are not passed on. --background-after lets it go on
as a handle of the session: what it wrote so far was passed on, stderr names the
handle, and --json prints the envelope.

Exit codes: the command's own · 124 deadline or no output · 125 procsup itself
or an unusable path · 126 cannot be executed · 127 not found · 64 usage; with -S
also 73 refused, such as busy_session · 69 no daemon · 0 gone to the background.

Examples:
   procsup run -- go build ./...
   procsup run --deadline 10m --grace 5s -- make -j4
   procsup run --no-output-timeout 60s -- ./flaky-download.sh
   procsup run --json -- sh -c 'echo hello; exit 3' | jq .exit_code
   procsup run --result fd:3 -- ./tests.sh 3>result.json
   procsup run --leftover keep -- ./start-daemon.sh
   procsup run --events-to events.jsonl -- ./build.sh
   procsup run -S agent --background-after 10s --json -- make test`

func runCommand(signals *caught) *cli.Command {
	return &cli.Command{
		Name:            "run",
		HideHelpCommand: true, // a command may be called help
		Usage:           "run a command in front, wrapped exactly",
		ArgsUsage:       "[--] CMD [ARG…]",
		Description:     runHelp,
		OnUsageError:    onUsageError,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "deadline", Usage: "end the tree after `D` (such as 90s, 10m; plain numbers are seconds; 0 = never)"},
			&cli.StringFlag{Name: "no-output-timeout", Usage: "end the tree when it wrote nothing for `D`; implies capture with pass-through, so the command writes to pipes"},
			&cli.StringFlag{Name: "grace", Usage: "at most `D` between the stop signal and KILL", Value: "2s"},
			&cli.StringFlag{Name: "stop-signal", Usage: "`SIG` that asks the command to stop at the deadline", Value: "TERM"},
			&cli.StringFlag{Name: "leftover", Usage: "processes that outlive the command: `kill`, wait for or keep them", Value: "kill"},
			&cli.BoolFlag{Name: "forward", Usage: "pass every signal on and stop on none (the default as PID 1)"},
			&cli.BoolFlag{Name: "exit-code", Usage: "exit 128+n for a death by signal n instead of dying of it"},
			&cli.StringFlag{Name: "dir", Usage: "run in `DIR`"},
			&cli.StringSliceFlag{Name: "env", Usage: "set `K=V` for the command (repeatable)"},
			&cli.StringFlag{Name: "env-mode", Usage: "`inherit`, minimal (PATH, HOME, USER, LANG, TERM …) or empty", Value: "inherit"},
			&cli.StringFlag{Name: "stdin", Usage: "`inherit`, null, or a file", Value: "inherit"},
			&cli.BoolFlag{Name: "pty", Usage: "run in a terminal of its own, relayed to ours"},
			&cli.StringFlag{Name: "capture", Usage: "pass output through and keep a copy in `DIR` (stdout, stderr, index)"},
			&cli.BoolFlag{Name: "merge", Usage: "capture stderr into stdout, in the order written"},
			&cli.StringFlag{Name: "max-output", Usage: "keep at most `SIZE` of each stream: the first 1M and the newest", Value: "1G"},
			&cli.StringFlag{Name: "result", Usage: "write the JSON record to `FILE|fd:N`"},
			&cli.BoolFlag{Name: "json", Usage: "capture, and print one JSON record with head and tail of the output"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "say nothing of what procsup did"},
			&cli.StringFlag{Name: "containment", Usage: "`auto`, cgroup, tree or group; see procsup doctor", Value: "auto"},
			&cli.IntFlag{Name: "events", Usage: "keep `N` events of the run for a slow reader of --events-to, with -S for procsup events; implies capture with pass-through", Value: wire.EventRing},
			&cli.StringFlag{Name: "events-to", Usage: "write events, one JSON line each, to `FILE` or a FIFO, whose reader slows nobody"},
			&cli.StringFlag{Name: "session", Aliases: []string{"S"}, Usage: "run under the daemon as the parent run of session `NAME`"},
			&cli.StringFlag{Name: "scope", Usage: "with -S: in the open scope `G`"},
			&cli.StringFlag{Name: "background-after", Usage: "with -S: after `D` it goes on as a handle of the session"},
			&cli.StringFlag{Name: "kind", Usage: "with -S: `command`, test or build"},
			&cli.StringFlag{Name: "socket", Usage: "with -S: `PATH` of the daemon's socket"},
			&cli.StringFlag{Name: "state", Usage: "with -S: state `DIR` of the daemon"},
		},
		Action: func(c *cli.Context) error { return doRun(c, signals) },
	}
}

func doRun(c *cli.Context, signals *caught) error {
	opt, err := parseRun(c)
	if err != nil {
		return err
	}
	if signals == nil {
		signals = catchEarly()
	}
	if c.IsSet("session") {
		return runInSession(c, opt, signals)
	}
	for _, name := range []string{"scope", "background-after", "kind", "socket", "state"} {
		if c.IsSet(name) {
			return usagef("run: --%s is for a run of a session: -S is missing", name)
		}
	}
	return runForeground(opt, signals)
}
