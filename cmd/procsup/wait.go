package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/wire"
)

const waitHelp = `Waits until each HANDLE has ended and exits as it ended: its exit code, 128+n
for a death by signal n, 124 for a deadline. With several handles: 0 if all
ended well, else the code of the first in the order given that did not. The
wait survives a restart of the daemon. An end that is owed to a session is taken
out of its inbox, and acknowledged once it was printed. --timeout bounds the wait and cancels
nothing; --timeout 0 does not wait at all.

Exit codes: as above · 75 not ended within the timeout · 66 no such handle ·
69 no daemon · 64 usage.

Examples:
   h=$(procsup start -- make); procsup wait $h || procsup logs $h --tail 20
   procsup wait $h --timeout 30s
   procsup wait $h --timeout 0 --json | jq -r .wait_status
   procsup wait $a $b $c`

func waitCommand() *cli.Command {
	return verb("wait", "wait for the end of handles and exit as they ended", "HANDLE…", waitHelp, doWait,
		&cli.StringFlag{Name: "timeout", Usage: "at most `D`, then exit 75 (0 = only look)"},
	)
}

// flatWait is a wait's answer with the record's fields beside its own.
type flatWait struct {
	*handles.Record
	WaitStatus   string `json:"wait_status"`
	TimeoutPhase string `json:"timeout_phase,omitempty"`
}

func doWait(c *cli.Context, r *remote) error {
	if c.NArg() == 0 {
		return usagef("wait: no handle given; procsup list shows them")
	}
	ms, err := millisFlag(c, "timeout")
	if err != nil {
		return err
	}
	var first error
	began := time.Now()
	for _, ref := range c.Args().Slice() {
		w, err := waitOne(r, ref, left(ms, began))
		if err != nil {
			return err
		}
		if c.Bool("json") {
			if err := printJSON(c, flatWait{w.Record, w.Status, w.TimeoutPhase}); err != nil {
				return err
			}
		}
		if err := r.settle(w.Record.SessionID, w.Batch, "delivered"); err != nil {
			return err
		}
		if !w.Record.Status.Terminal() {
			if first == nil {
				first = &exitError{code: exitTimedOut, msg: fmt.Sprintf("wait: %s is still %s", ref, w.Record.Status)}
			}
			continue
		}
		if err := ended(w.Record); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// left is what is left of a timeout: 0 = for ever, negative = do not wait.
func left(ms *int64, began time.Time) time.Duration {
	if ms == nil {
		return 0
	}
	d := time.Duration(*ms)*time.Millisecond - time.Since(began)
	if d <= 0 {
		return -1
	}
	return d
}

func waitOne(r *remote, ref string, timeout time.Duration) (w *wire.Waited, err error) {
	if timeout >= 0 {
		defer waiting(os.Stderr, ref)()
	}
	err = r.do(func() (err error) {
		w, err = r.WaitTake(context.Background(), ref, timeout)
		return err
	})
	return w, err
}
