package main

import (
	"github.com/urfave/cli/v2"
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

Exit codes: the command's own · 124 deadline or no output · 125 procsup itself
or an unusable path · 126 cannot be executed · 127 not found · 64 usage.

Examples:
   procsup run -- go build ./...
   procsup run --deadline 10m --grace 5s -- make -j4
   procsup run --no-output-timeout 60s -- ./flaky-download.sh
   procsup run --json -- sh -c 'echo hello; exit 3' | jq .exit_code
   procsup run --result fd:3 -- ./tests.sh 3>result.json
   procsup run --leftover keep -- ./start-daemon.sh`

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
		},
		Action: func(c *cli.Context) error {
			opt, err := parseRun(c)
			if err != nil {
				return err
			}
			if signals == nil {
				signals = catchEarly()
			}
			return runForeground(opt, signals)
		},
	}
}
