package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

const listHelp = `Lists handles, newest first: those that live, or with --all also those that have
ended. --session takes only those of one session.

Examples:
   procsup list
   procsup list --all --limit 20
   procsup list --all --kind test -S agent
   procsup list --json | jq -r '.handles[].handle_id'`

func listCommand() *cli.Command {
	return verb("list", "list handles", "", listHelp, doList,
		&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "also those that have ended"},
		&cli.BoolFlag{Name: "active", Usage: "only those that live: the default"},
		&cli.StringFlag{Name: "kind", Usage: "only `command`, test or build"},
		&cli.IntFlag{Name: "limit", Usage: "at most `N`, the newest (0 = all)"},
	)
}

func doList(c *cli.Context, r *remote) error {
	if c.Args().Present() {
		return usagef("list: unexpected argument %q; procsup show prints one handle", c.Args().First())
	}
	if c.Int("limit") < 0 {
		return usagef("list: --limit: %d is negative", c.Int("limit"))
	}
	if c.Bool("all") && c.Bool("active") {
		return usagef("list: either --all or --active")
	}
	f := client.Filter{Kind: c.String("kind"), Live: !c.Bool("all"), Limit: c.Int("limit"), Session: c.String("session")}
	var l *wire.List
	if err := r.do(func() (err error) { l, err = r.List(context.Background(), f); return err }); err != nil {
		return err
	}
	if c.IsSet("session") && len(l.Handles) == 0 { // a name that was mistyped is no empty session
		if err := r.do(func() error { _, err := r.ShowSession(context.Background(), f.Session); return err }); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return printJSON(c, l)
	}
	if err := writeHandles(c.App.Writer, l); err != nil {
		return unusable("list: write: %v", err)
	}
	if l.More {
		fmt.Fprintf(c.App.ErrWriter, "procsup: there are more than %d; see --limit\n", c.Int("limit"))
	}
	return nil
}

func writeHandles(w io.Writer, l *wire.List) error {
	if len(l.Handles) == 0 {
		return nil
	}
	paint := colours(w)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "HANDLE\tNAME\tSESSION\t%s\tEXIT\tTIME\tCOMMAND\n", head(paint, "STATUS"))
	for i := range l.Handles {
		h := &l.Handles[i]
		exit := h.Signal
		if h.ExitCode != nil {
			exit = strconv.Itoa(*h.ExitCode)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.HandleID, dash(h.Name), h.SessionID, painted(paint, h.Status)+howReady(h), dash(exit),
			people(time.Duration(h.DurationMS)*time.Millisecond), plain(h.Descriptor, 60))
	}
	return t.Flush()
}

// howReady is, of a run with conditions, how far it is.
func howReady(h *handles.Record) string {
	if h.Readiness == nil || h.Status != handles.Running {
		return ""
	}
	return ", " + h.Readiness.State
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// painted is a status in its colour. Every cell of the column has as many bytes
// of colour, so that the columns stay aligned.
func painted(on bool, s handles.Status) string {
	if !on {
		return string(s)
	}
	return colourOf(s) + string(s) + "\x1b[0m"
}

func head(on bool, s string) string {
	if !on {
		return s
	}
	return "\x1b[39m" + s + "\x1b[0m"
}
