package main

import (
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/wire"
)

const pendingHelp = `Prints how many ends are owed to the session: those that nobody took, and those
that were taken and not acknowledged yet. With --items they are listed. Reading
changes nothing.

Examples:
   procsup pending -S agent
   procsup pending -S agent --items
   procsup pending -S agent --items --json | jq -r '.[].handle_id'`

func pendingCommand() *cli.Command {
	return verb("pending", "count the ends that are owed to a session", "", pendingHelp, doPending,
		&cli.BoolFlag{Name: "items", Usage: "list them"})
}

func doPending(c *cli.Context, r *remote) error {
	if err := noArguments(c); err != nil {
		return err
	}
	var p *wire.Pending
	if err := r.do(func() (err error) { p, err = r.Pending(context.Background(), c.Bool("items")); return err }); err != nil {
		return err
	}
	switch {
	case !c.Bool("items"):
		return r.print(c, p, strconv.Itoa(p.Count))
	case c.Bool("json"):
		if p.Items == nil {
			p.Items = []wire.Completion{}
		}
		return printJSON(c, p.Items)
	case p.Count == 0:
		return nil
	}
	t := tabwriter.NewWriter(c.App.Writer, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "HANDLE\tKIND\tSTATUS\tEXIT\tTAKEN IN\tCOMMAND")
	for _, i := range p.Items {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", i.HandleID, i.Operation, i.Status, dash(exitText(i.Result)), dash(i.Batch), plain(i.Descriptor, 60))
	}
	if err := t.Flush(); err != nil {
		return unusable("pending: write: %v", err)
	}
	return nil
}

// exitText is the exit code or the signal.
func exitText(r *handles.Record) string {
	switch {
	case r == nil:
		return ""
	case r.ExitCode != nil:
		return strconv.Itoa(*r.ExitCode)
	}
	return r.Signal
}

const deliveriesHelp = `Lists the batches of a session that were delivered, newest first: which handles
each held, and when it was acknowledged.

Examples:
   procsup deliveries -S agent
   procsup deliveries -S agent --limit 1 --json | jq -r '.deliveries[].handles[]'`

func deliveriesCommand() *cli.Command {
	return verb("deliveries", "list what was delivered to a session", "", deliveriesHelp, doDeliveries,
		&cli.IntFlag{Name: "limit", Usage: "at most `N`, the newest (0 = all)"})
}

func doDeliveries(c *cli.Context, r *remote) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if c.Int("limit") < 0 {
		return usagef("deliveries: --limit: %d is negative", c.Int("limit"))
	}
	var d *wire.Deliveries
	if err := r.do(func() (err error) { d, err = r.Deliveries(context.Background(), c.Int("limit")); return err }); err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, d)
	}
	t := tabwriter.NewWriter(c.App.Writer, 0, 8, 2, ' ', 0)
	for i, x := range d.Deliveries {
		if i == 0 {
			fmt.Fprintln(t, "BATCH\tDELIVERED\tHANDLES")
		}
		for n, h := range x.Handles {
			batch, at := x.Batch, x.At.Local().Format(time.DateTime)
			if n > 0 {
				batch, at = "", ""
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", batch, at, h)
		}
	}
	if err := t.Flush(); err != nil {
		return unusable("deliveries: write: %v", err)
	}
	return nil
}
