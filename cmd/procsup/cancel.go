package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

const cancelHelp = `Ends the whole tree of each HANDLE: the stop signal, and what is left after the
grace is killed. Returns when it has ended. A handle that has ended already is
left as it is, and that is no error: it can stand in a trap.

Prints cancelled:true when this call ended it and nothing of it is left, else
cancelled:false and why.

Exit codes: 0 ended, now or before · 75 not ended within --wait-result · 125
something of it is left · 66 no such handle · 69 no daemon · 64 usage.

Examples:
   procsup cancel $h
   trap 'procsup cancel $h --wait-result 5s' EXIT
   procsup cancel --run -S agent
   procsup cancel db --grace 30s --reason 'nightly backup'
   procsup cancel $h --json | jq .cancelled`

func cancelCommand() *cli.Command {
	return verb("cancel", "end handles and their whole trees", "HANDLE…", cancelHelp, doCancel,
		append(stopFlags(), &cli.BoolFlag{Name: "run", Usage: "the active parent run of the session"})...)
}

func stopFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "grace", Usage: "at most `D` between the stop signal and KILL (default: as it was started)"},
		&cli.StringFlag{Name: "wait-result", Usage: "wait at most `D` for the end (default: until it has ended)"},
		&cli.StringFlag{Name: "signal", Usage: "`SIG` instead of the stop signal it was started with"},
		&cli.StringFlag{Name: "reason", Usage: "`WHY`, for the record"},
	}
}

// flatCancel is a cancel's answer with the record's fields beside its own.
type flatCancel struct {
	*handles.Record
	Cancelled bool `json:"cancelled"`
	Stopping  bool `json:"stopping,omitempty"`
}

func parseStop(c *cli.Context) (req wire.Cancel, err error) {
	req.Reason, req.Signal = c.String("reason"), c.String("signal")
	if req.Signal != "" {
		if err := checkStopSignal(req.Signal); err != nil {
			return req, usagef("%s: --signal: %v", c.Command.Name, err)
		}
	}
	if req.GraceMS, err = millisFlag(c, "grace"); err != nil {
		return req, err
	}
	ms, err := millisFlag(c, "wait-result")
	if err != nil {
		return req, err
	}
	if ms != nil {
		req.WaitResultMS, req.NoWait = *ms, *ms == 0
	}
	return req, nil
}

func doCancel(c *cli.Context, r *remote) error {
	req, err := parseStop(c)
	switch {
	case err != nil:
		return err
	case c.Bool("run") && c.Args().Present():
		return usagef("cancel: either handles or --run")
	case c.Bool("run"):
		return cancelRun(c, r, req)
	case c.NArg() == 0:
		return usagef("cancel: no handle given; procsup list shows them")
	}
	var first error
	for _, ref := range c.Args().Slice() {
		if err := cancelOne(c, r, ref, req); err != nil {
			if first != nil || c.NArg() > 1 {
				fmt.Fprintln(c.App.ErrWriter, "procsup: "+err.Error())
			}
			if first == nil {
				first = err
			}
		}
	}
	if e, ok := first.(*exitError); ok && c.NArg() > 1 {
		return &exitError{code: e.code} // said already
	}
	return first
}

// cancelRun ends the parent run that a session has now: by its id, so that a
// later one is left alone.
func cancelRun(c *cli.Context, r *remote, req wire.Cancel) error {
	if r.session == "" {
		return usagef("cancel: --run: of which session? give -S")
	}
	var s *handles.Session
	if err := r.do(func() (err error) { s, err = r.ShowSession(context.Background(), r.session); return err }); err != nil {
		return err
	}
	if s.Active == "" {
		return r.print(c, wire.Cancelled{}, "cancelled:false (session "+s.Name+" has no active run)")
	}
	return cancelOne(c, r, string(s.Active), req)
}

func cancelOne(c *cli.Context, r *remote, ref string, req wire.Cancel) error {
	var k *wire.Cancelled
	req.Idempotency = client.NewKey() // here, since a call may be made twice
	err := r.do(func() (err error) { k, err = r.Cancel(context.Background(), ref, req); return err })
	if err != nil {
		return err
	}
	rec := k.Record
	if c.Bool("json") {
		err = printJSON(c, flatCancel{rec, k.Cancelled, k.Stopping})
	} else {
		_, err = fmt.Fprintf(c.App.Writer, "cancelled:%v (%s)\n", k.Cancelled, outcomeText(rec))
	}
	switch {
	case err != nil:
		return err
	case !rec.Status.Terminal() && !req.NoWait:
		return &exitError{code: exitTimedOut, msg: fmt.Sprintf("cancel: %s is being ended and has not ended yet", ref)}
	case len(rec.Cleanup.Survivors) > 0 && !rec.Cleanup.Kept:
		return &exitError{code: exitProcsup, msg: fmt.Sprintf("cancel: %s: could not be ended: %s", ref, survivors(rec))}
	}
	return nil
}

func survivors(rec *handles.Record) string {
	var s []string
	for _, p := range rec.Cleanup.Survivors {
		s = append(s, plain(fmt.Sprintf("%d (%s) %s", p.PID, p.Command, p.Why), 120))
	}
	return strings.Join(s, ", ")
}
