package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/wire"
)

const continueHelp = `Takes all ends that are owed to the session as one batch, prints it as one line of
JSON, and acknowledges it when that was written. A batch that was taken and not
acknowledged, because its reader died, is offered again with the same id and
redelivered:true. Nothing there: event is nothing_pending, and that is no error.

With --exec CMD nothing is printed: CMD is run by sh as the session's parent run,
as procsup run -S does, with the batch on its stdin. The batch is acknowledged
when CMD exits 0; else its ends go back into the inbox.

A continuation carries no text of its own: stdin is not read, and anything else
is refused as config_error before anything is taken.

Exit codes: 0 · with --exec the command's own, 124 deadline · 73 refused, such as
busy_session · 64 usage, config_error · 69 no daemon · 125 procsup itself.

Examples:
   procsup continue -S agent | jq -r '.completions[].handle_id'
   procsup continue -S agent --wait 30s --max-items 10
   procsup continue -S agent --exec ./handle-results --deadline 1m`

func continueCommand() *cli.Command {
	cmd := verb("continue", "take what is owed to a session as one batch", "", continueHelp, nil,
		&cli.StringFlag{Name: "exec", Usage: "run `CMD` with the batch on its stdin"},
		&cli.IntFlag{Name: "max-items", Usage: "at most `N` (0 = all)"},
		&cli.StringFlag{Name: "wait", Usage: "wait at most `D` for something to be owed"},
		&cli.StringFlag{Name: "deadline", Usage: "with --exec: end the command after `D`"},
		&cli.StringFlag{Name: "scope", Usage: "with --exec: in the open scope `G`"},
		&cli.IntFlag{Name: "events", Usage: "with --exec: keep `N` events for a slow receiver", DefaultText: "1024"},
		&cli.StringFlag{Name: "input", Hidden: true},
	)
	cmd.Action = func(c *cli.Context) error {
		if err := noText(c); err != nil {
			return err
		}
		var signals *caught
		if c.IsSet("exec") {
			signals = catchEarly()
		}
		r, err := connect(c)
		if err != nil {
			return err
		}
		defer r.Close()
		return doContinue(c, r, signals)
	}
	return cmd
}

// noText refuses whatever a continuation would carry besides what is owed.
func noText(c *cli.Context) error {
	e := &handles.Error{Code: handles.CodeConfig, Hint: "the inbox is as it was"}
	switch {
	case c.IsSet("input"):
		e.Message = "config_error: a continuation carries no input of its own"
	case c.Args().Present():
		e.Message = fmt.Sprintf("config_error: a continuation carries no text, such as %q; a command goes behind --exec", c.Args().First())
	case c.IsSet("exec") && c.String("exec") == "":
		e.Message = "config_error: the command of --exec is empty"
	default:
		for _, f := range []string{"deadline", "scope", "events"} {
			if c.IsSet(f) && !c.IsSet("exec") {
				return usagef("continue: --%s is for a command: --exec is missing", f)
			}
		}
		return nil
	}
	return &exitError{code: codeOf(e.Code), msg: "continue: " + e.Error()}
}

func doContinue(c *cli.Context, r *remote, signals *caught) error {
	req := wire.Take{Max: c.Int("max-items")}
	if req.Max < 0 {
		return usagef("continue: --max-items: %d is negative", req.Max)
	}
	ms, err := millisFlag(c, "wait")
	if err != nil {
		return err
	}
	if ms != nil {
		req.WaitMS = *ms
	}
	var start *wire.Start
	if c.IsSet("exec") {
		if start, err = consumer(c, r.session); err != nil {
			return err
		}
	}
	var b *wire.Batch
	if err := r.do(func() (err error) { b, err = r.Take(context.Background(), req); return err }); err != nil {
		return err
	}
	if b.Count == 0 || start == nil {
		if err := printJSON(c, b); err != nil {
			return err // not acknowledged: it is offered again
		}
		return r.settle(b.Session, b.Batch, "delivered")
	}
	return r.feed(c, b, start, signals)
}

// settle tells what became of a batch.
func (r *remote) settle(session, batch, outcome string) error {
	if batch == "" {
		return nil
	}
	return r.do(func() error {
		_, err := r.Acknowledge(context.Background(), session, wire.Acknowledge{Batch: batch, Outcome: outcome})
		return err
	})
}

// consumer is the start of the command that gets the batch.
func consumer(c *cli.Context, session string) (*wire.Start, error) {
	req := &wire.Start{Session: session, Command: []string{"/bin/sh", "-c", c.String("exec")}, Scope: c.String("scope"), Events: c.Int("events")}
	if c.IsSet("events") && req.Events < 1 {
		return nil, usagef("continue: --events: at least 1, not %d", req.Events)
	}
	if err := startTimes(c, req); err != nil {
		return nil, err
	}
	if err := startPlace(c, req); err != nil {
		return nil, err
	}
	return req, startEnv(c, req)
}

// feed gives the batch to a command and settles it by how that ended.
func (r *remote) feed(c *cli.Context, b *wire.Batch, start *wire.Start, signals *caught) error {
	data, err := json.Marshal(b)
	if err != nil {
		return unusable("continue: %v", err)
	}
	f := &front{r: r, c: c, req: start, input: bytes.NewReader(append(data, '\n')), out: os.Stdout, errOut: os.Stderr}
	end, err := f.run(signals)
	outcome := "returned"
	if err == nil && end.Status == handles.Completed {
		outcome = "delivered"
	}
	if serr := r.settle(b.Session, b.Batch, outcome); serr != nil && err == nil {
		return serr
	}
	if err != nil {
		return err
	}
	return f.mirror(end)
}
