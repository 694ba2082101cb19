package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/urfave/cli/v2"

	"procsup/handles"
)

const showHelp = `Prints all that is known of a handle. Reading changes nothing.

Examples:
   procsup show db
   procsup show db --line
   procsup show --json $h | jq -r .output.stdout.path
   procsup show hto-01J8 --json | jq .status`

func showCommand() *cli.Command {
	return verb("show", "print the record of a handle", "HANDLE", showHelp, doShow,
		&cli.BoolFlag{Name: "line", Usage: "one line: the id, how it stands, and its command"})
}

func doShow(c *cli.Context, r *remote) error {
	ref, err := oneHandle(c)
	if err != nil {
		return err
	}
	var rec *handles.Record
	if err := r.do(func() (err error) { rec, err = r.Show(context.Background(), ref); return err }); err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, rec)
	}
	if c.Bool("line") {
		return r.print(c, nil, recordLine(rec))
	}
	return writeRecord(c.App.Writer, rec)
}

// recordLine is what somebody who has not seen the end hands on.
func recordLine(r *handles.Record) string {
	s := string(r.HandleID)
	if r.Name != "" {
		s += " " + r.Name
	}
	s += ": " + outcomeText(r)
	if r.Error != "" {
		s += ": " + plain(r.Error, 0)
	}
	return s + ": " + plain(r.Descriptor, 80)
}

// printJSON prints one value on one line.
func printJSON(c *cli.Context, v any) error {
	enc := json.NewEncoder(c.App.Writer)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return unusable("%s: write: %v", c.Command.Name, err)
	}
	return nil
}

// writeRecord prints for people what is not empty.
func writeRecord(w io.Writer, r *handles.Record) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(name string, value any) {
		if s := fmt.Sprint(value); s != "" && s != "0" {
			fmt.Fprintf(t, "%s\t%s\n", name, s)
		}
	}
	row("handle", r.HandleID)
	row("name", r.Name)
	row("session", r.SessionID)
	row("command", plain(r.Descriptor, 0))
	row("dir", plain(r.Dir, 0))
	row("status", outcomeText(r))
	row("error", plain(r.Error, 0))
	row("pid", r.PID)
	row("lease", r.Lease)
	row("containment", r.Containment)
	row("started", r.StartedAt.Local().Format(time.DateTime))
	if !r.EndedAt.IsZero() {
		row("ended", r.EndedAt.Local().Format(time.DateTime))
	}
	readyRows(row, r)
	row("took", people(time.Duration(r.DurationMS)*time.Millisecond))
	if s := r.Stop; s != nil {
		row("stopped by", plain(fmt.Sprintf("%s: %s (%s)", s.By, s.Reason, s.Answer), 0))
	}
	if o := r.Output; o != nil {
		streamRow(row, "stdout", o.Stdout)
		streamRow(row, "stderr", o.Stderr)
	}
	for _, p := range r.Cleanup.Leftovers {
		row("leftover", plain(fmt.Sprintf("%d %s", p.PID, p.Command), 0))
	}
	for _, p := range r.Cleanup.Survivors {
		row("survivor", plain(fmt.Sprintf("%d %s %s", p.PID, p.Command, p.Why), 0))
	}
	if err := t.Flush(); err != nil {
		return unusable("show: write: %v", err)
	}
	return nil
}

// readyRows say how far a run is that was started with conditions.
func readyRows(row func(string, any), r *handles.Record) {
	v := r.Readiness
	if v == nil {
		return
	}
	state := v.State
	if !r.ReadyAt.IsZero() {
		state += " since " + r.ReadyAt.Local().Format(time.DateTime)
	}
	row("readiness", state)
	row("says", plain(v.Status, 0))
	for _, c := range v.Conditions {
		text := c.Condition + ": waiting"
		switch {
		case c.Why != "":
			text = c.Condition + ": " + c.Why
		case !c.HeldAt.IsZero():
			text = c.Condition + ": held"
			if c.Text != "" {
				text += " (" + c.Text + ")"
			}
		}
		row("condition", plain(text, 0))
	}
}

func streamRow(row func(string, any), name string, s *handles.StreamOutput) {
	if s == nil {
		return
	}
	text := fmt.Sprintf("%d bytes", s.Bytes)
	var lost int64
	for _, o := range s.Omitted {
		lost += o.To - o.From
	}
	if lost > 0 {
		text += fmt.Sprintf(", %d omitted", lost)
	}
	row(name, text+"  "+s.Path)
}

// plain makes a text safe for a terminal and one line, at most max runes long;
// 0 = any length.
func plain(s string, max int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '\ufffd'
		}
		return r
	}, s)
	if rs := []rune(s); max > 0 && len(rs) > max {
		return string(rs[:max-1]) + "…"
	}
	return s
}
