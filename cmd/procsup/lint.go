package main

import "github.com/urfave/cli/v2"

const lintHelp = `Says what shell scripts and Go programs start in the background and do not end
whatever happens, and where they sleep, poll or kill by name. FILE is a script
(sh, bash, ksh, bats: by its first line, then by its name), a .go file, - for
standard input, or a pattern of Go packages such as ./... (this needs the go
command and sees the types of all packages; a .go file is checked by itself).
Directories are not followed.

Rules:
  long-running-without-cleanup  a & job or a procsup start that no EXIT trap can
                                end, that nothing waits for or cancels on every
                                way, and that no bound session ends; in Go what
                                procsup/pgroup, supervisor and client start
                                without a deferred or sure Cancel, Close, Stop
                                or Wait
  sleep-for-readiness           a fixed sleep, or nothing, before a server is used
  poll-for-readiness            a loop that asks for ever
  kill-by-name                  pkill, killall, kill $(pgrep …), a port
  syntax                        the file cannot be read: nothing else is said of it

A finding is a warning (something is left behind, a stranger is hit) or a note.
The exit code is 0 whatever is found; with --error it is 1 when there is a
warning. 125: a file cannot be read; 64: wrong usage.

A comment on the line, on the line above or on the last line of the statement
silences one rule, with a reason:
  server &   # procsup-lint: ignore long-running-without-cleanup the container ends it
  g, err := pgroup.Start(c, cfg) //procsup-lint:ignore long-running-without-cleanup ended by main

In sh an EXIT trap alone may not run when a signal ends the script (dash), so
--fix-hint adds one for HUP, INT and TERM there. KILL runs no trap anywhere.

A script that reads others, or calls functions by computed names, is given the
benefit of the doubt where those may clean up.

Examples:
   procsup lint run-tests.sh
   procsup lint --fix-hint deploy.sh                 with the line to write instead
   procsup lint --error scripts/*.sh ./...           in CI
   procsup lint --sarif scripts/*.sh >lint.sarif     for code scanning
   procsup lint --json ci.sh | jq '.findings[].verdict'
   git show HEAD:run.sh | procsup lint --lang bash -
   go vet -vettool=$(command -v procsupd) ./...      the Go rule inside go vet`

// lintCommand is done by procsupd, which links the parsers.
func lintCommand() *cli.Command {
	return forwarded(&cli.Command{
		Name: "lint", Usage: "say what scripts and Go programs start and do not end", ArgsUsage: "FILE…", Description: lintHelp,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "error", Usage: "exit 1 when there is a warning"},
			&cli.BoolFlag{Name: "fix-hint", Usage: "with each finding the line to write in its place"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object"},
			&cli.BoolFlag{Name: "sarif", Usage: "print SARIF 2.1.0"},
			&cli.StringFlag{Name: "lang", Usage: "read every FILE as `LANG`: sh, bash, mksh, bats, go (default: by its first line and name)"},
		},
	})
}
