package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/wire"
)

const waitReadyHelp = `Waits until HANDLE, which was started with --ready, is ready: all its conditions
have held, and it has not said since that it reloads or stops. The wait is woken,
not polled, and survives a restart of the daemon. --timeout bounds the wait and
ends nothing; --timeout 0 only looks.

Exit codes: 0 ready · 65 it ended before, or is being ended · 75 not within the
timeout · 73 it was started without --ready · 66 no such handle · 69 no daemon.

Examples:
   h=$(procsup start --ready 'output:Ready to accept connections' -- redis-server)
   procsup wait-ready $h && redis-cli ping
   procsup wait-ready $h --timeout 10s --json | jq .record.ready_at`

func waitReadyCommand() *cli.Command {
	return verb("wait-ready", "wait until a handle is ready", "HANDLE", waitReadyHelp, doWaitReady,
		&cli.StringFlag{Name: "timeout", Usage: "at most `D`, then exit 75 (0 = only look)"},
	)
}

func doWaitReady(c *cli.Context, r *remote) error {
	ref, err := oneHandle(c)
	if err != nil {
		return err
	}
	ms, err := millisFlag(c, "timeout")
	if err != nil {
		return err
	}
	var w *wire.ReadyWaited
	began := time.Now()
	if err := r.do(func() (err error) {
		w, err = r.WaitReady(context.Background(), ref, left(ms, began))
		return err
	}); err != nil {
		return err
	}
	if c.Bool("json") {
		if err := printJSON(c, w); err != nil {
			return err
		}
	}
	switch w.Status {
	case wire.Ready:
		return nil
	case wire.Exited:
		return &exitError{code: exitNoMatch, msg: "wait-ready: " + notReady(ref, w.Record)}
	}
	return &exitError{code: exitTimedOut, msg: fmt.Sprintf("wait-ready: %s is %s and not ready: %s", ref, outcomeText(w.Record), waitsFor(w.Record.Readiness))}
}

// notReady says why a run that has ended is not ready, and what it wrote last.
func notReady(ref string, r *handles.Record) string {
	s := ref + " is " + outcomeText(r)
	switch {
	case r.Readiness == nil:
	case r.Error != "":
		s += ": " + r.Error
	case !r.Readiness.FirstAt.IsZero():
		s += "; it was ready before"
	default:
		s += " and was never ready: " + waitsFor(r.Readiness)
	}
	if o := lastOutput(r); o != "" {
		s += "\nits last output:\n" + o
	}
	return s
}

// waitsFor names the conditions that have not held, or says that it is ready no
// more.
func waitsFor(v *handles.Readiness) string {
	var open []string
	for _, c := range v.Conditions {
		if c.HeldAt.IsZero() {
			open = append(open, c.Condition)
		}
	}
	switch {
	case len(open) > 0:
		return "waiting for " + strings.Join(open, ", ")
	case v.Status != "":
		return v.State + " (" + v.Status + ")"
	}
	return v.State
}

// lastOutput is the last output of a start that was aborted, indented.
func lastOutput(r *handles.Record) string {
	if r.Readiness == nil || r.Readiness.LastOutput == nil {
		return ""
	}
	o := r.Readiness.LastOutput
	var lines []string
	for _, text := range []string{o.Stdout, o.Stderr} {
		for line := range strings.Lines(text) {
			lines = append(lines, "  "+plain(strings.TrimRight(line, "\r\n"), 200))
		}
	}
	return strings.Join(lines, "\n")
}
