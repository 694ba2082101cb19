// Procsup wraps commands: own process group, terminal, signals, deadline,
// capture, true exit status, nothing left behind.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/urfave/cli/v2"

	"procsup/platform"
)

// Exit codes of procsup itself, design.md §8.
const (
	exitUsage    = 64
	exitDeadline = 124
	exitProcsup  = 125
	exitNotFound = 127
)

func main() {
	if err := platform.NeedFDs(2); err != nil { // Go's runtime takes two at its first timer, and dies without
		end(err)
	}
	if len(os.Args) > 1 && os.Args[1] == guardVerb {
		os.Exit(guardMain(os.Args[2:]))
	}
	var signals *caught
	if len(os.Args) > 1 && (os.Args[1] == "run" || os.Args[1] == "with") {
		signals = catchEarly()
	}
	app := newApp(os.Stdout, os.Stderr, signals)
	if len(os.Args) > 1 && os.Args[1] == completeVerb {
		complete(app, os.Args[2:])
		return
	}
	end(app.Run(flagsFirst(app, os.Args)))
}

// end turns what a verb returned into the end of this process.
func end(err error) {
	var e *exitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &e):
		if e.msg != "" {
			fmt.Fprintln(os.Stderr, "procsup: "+e.msg)
		}
		if e.signal != 0 {
			platform.DieBySignal(e.signal)
		}
		os.Exit(e.code)
	default:
		fmt.Fprintln(os.Stderr, "procsup: "+err.Error())
		os.Exit(exitProcsup)
	}
}

// An exitError ends procsup with a code, or by a signal, and says msg unless
// it is empty.
type exitError struct {
	code   int
	signal syscall.Signal
	msg    string
}

func (e *exitError) Error() string { return e.msg }

func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, msg: fmt.Sprintf(format, args...)}
}

func unusable(format string, args ...any) error {
	return &exitError{code: exitProcsup, msg: fmt.Sprintf(format, args...)}
}

func newApp(out, errOut io.Writer, signals *caught) *cli.App {
	return &cli.App{
		Name:  "procsup",
		Usage: "run commands so that nothing about them is lost and nothing of them is left behind",
		Description: `Examples:
   procsup run -- make -j4                      own group, true exit status, nothing left behind
   procsup run --deadline 30s -- ./tests.sh     end the whole tree after 30 s, exit 124
   procsup run --capture out -- ./build.sh      pass output through and keep a copy in out/
   procsup run --json -- ./check                one JSON record with head and tail of the output
   procsup lint run-tests.sh                    what the script leaves behind, and the line instead
   procsup doctor                               what this machine lets procsup do`,
		Version:                   version,
		HideVersion:               false,
		Writer:                    out,
		ErrWriter:                 errOut,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {}, // main ends the process, once
		OnUsageError:              onUsageError,
		CommandNotFound: func(c *cli.Context, name string) {
			end(usagef("unknown verb %q; see procsup --help", name))
		},
		Commands: append([]*cli.Command{runCommand(signals), doctorCommand(), versionCommand(), manCommand(), completionCommand()}, daemonVerbs(signals)...),
	}
}

func onUsageError(_ *cli.Context, err error, _ bool) error {
	return usagef("%v; see procsup --help", err)
}
