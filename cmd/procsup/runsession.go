package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// runInSession is `procsup run -S`.
func runInSession(c *cli.Context, o *options, signals *caught) error {
	for _, name := range []string{"pty", "capture", "forward", "events-to"} {
		if c.IsSet(name) {
			return usagef("run: --%s is not for a run of a session (-S)", name)
		}
	}
	r, err := connect(c)
	if err != nil {
		return err
	}
	defer r.Close()
	if r.session == "" {
		return usagef("run: -S: the name of the session is empty")
	}
	f := &front{r: r, c: c, quiet: o.quiet, codes: o.exitCode || os.Getpid() == 1}
	if f.req, err = parseFront(c, o, r.session); err != nil {
		return err
	}
	if o.stdin == "inherit" && hasInput(os.Stdin) {
		f.input = os.Stdin
	}
	if !o.json {
		f.out, f.errOut = os.Stdout, os.Stderr
	}
	result, err := openResult(o, signals)
	if err != nil {
		return err
	}
	rec, err := f.run(signals)
	if err != nil {
		return err
	}
	if err := result.write(rec); err != nil {
		return unusable("run: %v", err)
	}
	if o.json {
		if rec.Status.Terminal() {
			err = writeJSON(os.Stdout, rec)
		} else {
			a := *f.env
			a.Record = rec
			err = printJSON(c, a)
		}
	}
	if err != nil {
		return err
	}
	if err := f.taken(rec); err != nil {
		return err
	}
	return f.mirror(rec)
}

// taken settles the end of a run that was released, which we did not hear, and
// has ended since: it is told here, so it is not owed to the session as well.
func (f *front) taken(rec *handles.Record) error {
	if !rec.Status.Terminal() || rec.Delivery != handles.DeliveryPending {
		return nil
	}
	var w *wire.Waited
	err := f.r.do(func() (err error) {
		w, err = f.r.WaitTake(context.Background(), string(rec.HandleID), -1)
		return err
	})
	if err != nil {
		return err
	}
	return f.r.settle(rec.SessionID, w.Batch, "delivered")
}

// parseFront checks everything before anything happens.
func parseFront(c *cli.Context, o *options, session string) (*wire.Start, error) {
	req := &wire.Start{
		Command: o.argv, Session: session, Tag: c.String("kind"), Scope: c.String("scope"),
		StopSignal: c.String("stop-signal"), Leftover: c.String("leftover"), Containment: c.String("containment"), Merge: o.merge,
	}
	for _, f := range []func(*cli.Context, *wire.Start) error{startTimes, startWords, startPlace, startEnv} {
		if err := f(c, req); err != nil {
			return nil, err
		}
	}
	if c.IsSet("events") {
		req.Events = o.events
	}
	switch o.stdin {
	case "inherit", "null":
		return req, nil
	}
	path, err := filepath.Abs(o.stdin)
	if err != nil {
		return nil, unusable("run: --stdin: %v", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, unusable("run: --stdin %s: %v", path, reason(err))
	}
	f.Close()
	req.Stdin = path
	return req, nil
}
