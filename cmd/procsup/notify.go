package main

import (
	"context"
	"slices"

	"github.com/urfave/cli/v2"

	"procsup/supervisor/wire"
)

const notifyHelp = `Prints what happens in a session, one line of JSON each, until the session is
closed. The first line says subscribed: what happens after it is not missed.
What a slow reader missed is counted by a line of kind lagged. After a restart of
the daemon there is another subscribed line.

Reading changes nothing, and the lines are observations: what is so is told by
procsup pending, list and idle. Kinds: subscribed, handle_started,
handle_finished, completions_ready, output_matched, lagged, closed. There may be
others in the future: ignore those.

Examples:
   procsup notify -S agent
   procsup notify -S agent --kind completions_ready | while read -r _; do procsup continue -S agent; done
   procsup notify -S agent --since 41`

func notifyCommand() *cli.Command {
	return verb("notify", "follow what happens in a session", "", notifyHelp, doNotify,
		&cli.Int64Flag{Name: "since", Usage: "also what came after `SEQ`"},
		&cli.StringSliceFlag{Name: "kind", Usage: "only lines of this `KIND` (repeatable)"},
	)
}

func doNotify(c *cli.Context, r *remote) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if c.Int64("since") < 0 {
		return usagef("notify: --since: %d is negative", c.Int64("since"))
	}
	kinds := c.StringSlice("kind")
	return r.do(func() error {
		return r.Notices(context.Background(), c.Int64("since"), func(n wire.Notice) error {
			if len(kinds) > 0 && !slices.Contains(kinds, n.Kind) {
				return nil
			}
			return printJSON(c, n)
		})
	})
}

const eventsHelp = `Prints the events of a handle that runs, one line of JSON each, until its end:
started, output (which bytes can be read), stopping, ended. They are kept in a
ring: what a slow reader missed is counted by a line of kind overflow, and nobody
waits for it. --take makes this the one receiver of the handle, whose reading
decides what the record counts as dropped.

Exit codes: 0 · 73 it has ended, or its events were taken · 66 no such handle ·
69 no daemon · 64 usage.

Examples:
   procsup events $h
   procsup events $h --take >events.jsonl`

func eventsCommand() *cli.Command {
	return verb("events", "follow the events of a handle", "HANDLE", eventsHelp, doEvents,
		&cli.BoolFlag{Name: "take", Usage: "be the one receiver"})
}

func doEvents(c *cli.Context, r *remote) error {
	ref, err := oneHandle(c)
	if err != nil {
		return err
	}
	return r.do(func() error {
		return r.Events(context.Background(), ref, c.Bool("take"), func(e wire.Event) error { return printJSON(c, e) })
	})
}
