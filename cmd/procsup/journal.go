package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"procsup/supervisor/wire"
)

const journalHelp = `Prints the rows of the journal, the one ordered record of what happened, oldest
first. journal check verifies it.

Exit codes: 0 · 125 check found damage · 66 no such handle · 69 no daemon · 64 usage.

Examples:
   procsup journal --run $h
   procsup journal --after 1200 --limit 100 --json | jq .kind
   procsup journal check`

func journalCommand() *cli.Command {
	return verb("journal", "print or check the journal", "[check]", journalHelp, doJournal,
		&cli.Int64Flag{Name: "after", Usage: "only rows behind `SEQ`"},
		&cli.StringFlag{Name: "run", Usage: "only rows of `HANDLE`"},
		&cli.IntFlag{Name: "limit", Usage: "at most `N` rows (0 = all)"},
	)
}

func doJournal(c *cli.Context, r *remote) error {
	switch {
	case c.NArg() == 1 && c.Args().First() == "check":
		return checkJournal(c, r)
	case c.Args().Present():
		return usagef("journal: unexpected argument %q; see procsup journal --help", c.Args().First())
	case c.Int64("after") < 0 || c.Int("limit") < 0:
		return usagef("journal: --after and --limit cannot be negative")
	}
	var es []wire.JournalEntry
	err := r.do(func() (err error) {
		es, err = r.Journal(context.Background(), c.Int64("after"), c.String("run"), c.Int("limit"))
		return err
	})
	if err != nil {
		return err
	}
	for i := range es {
		e := &es[i]
		if c.Bool("json") {
			err = printJSON(c, e)
		} else {
			_, err = fmt.Fprintf(c.App.Writer, "%-8d %s %-10s %s %s\n", e.Seq, e.At.Local().Format("2006-01-02 15:04:05.000"), e.Kind, e.Run, about(e))
		}
		if err != nil {
			return unusable("journal: write: %v", err)
		}
	}
	return nil
}

// about is the gist of a row.
func about(e *wire.JournalEntry) string {
	b, err := json.Marshal(e.Body)
	if err != nil {
		return ""
	}
	var body struct {
		Record struct {
			Status     string `json:"status"`
			Descriptor string `json:"command_or_op_descriptor"`
		} `json:"record"`
		Stop struct {
			Kind   string `json:"kind"`
			Reason string `json:"reason"`
		} `json:"stop"`
	}
	if json.Unmarshal(b, &body) != nil {
		return ""
	}
	parts := []string{body.Record.Status, body.Stop.Kind, body.Stop.Reason}
	if e.Kind == "admitted" {
		parts = append(parts, body.Record.Descriptor)
	}
	return plain(strings.Join(strings.Fields(strings.Join(parts, " ")), " "), 100)
}

func checkJournal(c *cli.Context, r *remote) error {
	var rep *wire.JournalReport
	if err := r.do(func() (err error) { rep, err = r.CheckJournal(context.Background()); return err }); err != nil {
		return err
	}
	if c.Bool("json") {
		if err := printJSON(c, rep); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(c.App.Writer, "%d rows up to %d, %d runs, %d keys: ", rep.Entries, rep.LastSeq, rep.Runs, rep.Keys)
		if rep.OK {
			fmt.Fprintln(c.App.Writer, "sound")
		} else {
			fmt.Fprintln(c.App.Writer, "not sound")
		}
		for _, lines := range [][]string{rep.Damage, rep.Unfit, rep.Dirty} {
			for _, l := range lines {
				fmt.Fprintln(c.App.Writer, "  "+plain(l, 0))
			}
		}
	}
	if !rep.OK {
		return &exitError{code: exitProcsup, msg: "journal: it is damaged"}
	}
	return nil
}
