package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/wire"
)

const sessionHelp = `A session owns commands: it has an inbox of their ends, notices, and at most one
parent run. When it ends, all its work ends. Verbs take it with -S, or from
PROCSUP_SESSION.

Examples:
   procsup session open agent
   eval "$(procsup session open --bind-pid $$ --shell)"
   procsup session close agent`

func sessionCommand() *cli.Command {
	return &cli.Command{
		Name: "session", Usage: "open, list and end sessions", Description: sessionHelp,
		OnUsageError: onUsageError, Action: unknownAction,
		Subcommands: []*cli.Command{
			sessionOpenCommand(),
			endCommand("close", "end all work of a session and close it", closeHelp, (*remote).closeSession),
			endCommand("clear", "end all work of a session", clearHelp, (*remote).clearSession),
			endCommand("reset", "end all work of a session and begin anew", resetHelp, (*remote).resetSession),
			endCommand("delete", "close a session and forget it", deleteHelp, (*remote).deleteSession),
			verb("list", "list sessions", "", sessionListHelp, doSessionList,
				&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "also those that are closed"}),
			verb("show", "print a session", "[NAME]", sessionShowHelp, doSessionShow),
		},
	}
}

// unknownAction is what a verb with subcommands does without one.
func unknownAction(c *cli.Context) error {
	if !c.Args().Present() {
		return usagef("%s: what? see procsup %s --help", c.Command.Name, c.Command.Name)
	}
	return usagef("%s: unknown action %q; see procsup %s --help", c.Command.Name, c.Args().First(), c.Command.Name)
}

const sessionOpenHelp = `Opens a session, or takes the open one of that name, and prints its name; without
NAME one is made up. A closed session of that name is opened anew.

--bind-pid PID closes it, with all its work, when that process ends. --attach
holds it as long as this command lives: until it is signalled, or its stdin, if
that is a pipe, ends. --shell prints what a shell needs to go on in
the session, for eval.

Exit codes: 0 · 73 refused · 69 no daemon · 64 usage.

Examples:
   procsup session open agent
   eval "$(procsup session open --bind-pid $$ --shell)"
   procsup session open --attach ci-job <&3 &
   procsup session open agent --json | jq -r .token`

func sessionOpenCommand() *cli.Command {
	return verb("open", "open a session and print its name", "[NAME]", sessionOpenHelp, doSessionOpen,
		&cli.IntFlag{Name: "bind-pid", Usage: "close it when process `PID` ends"},
		&cli.BoolFlag{Name: "attach", Usage: "hold it, and close it when this command ends"},
		&cli.BoolFlag{Name: "shell", Usage: "print export PROCSUP_SESSION=… PROCSUP_TOKEN=… for eval"},
	)
}

func doSessionOpen(c *cli.Context, r *remote) error {
	name, err := sessionName(c, r)
	if err != nil {
		return err
	}
	req := wire.OpenSession{Name: name, BindPID: c.Int("bind-pid")}
	if c.IsSet("bind-pid") && req.BindPID <= 0 {
		return usagef("session open: --bind-pid: %d is no process", req.BindPID)
	}
	if c.Bool("attach") {
		return attach(c, r, req)
	}
	var s *handles.Session
	if err := r.do(func() (err error) { s, err = r.OpenSession(context.Background(), req); return err }); err != nil {
		return err
	}
	return r.printOpened(c, s)
}

func (r *remote) printOpened(c *cli.Context, s *handles.Session) error {
	text := s.Name
	if c.Bool("shell") {
		text = "export " + sessionVar + "=" + quoted(s.Name) + " " + tokenVar + "=" + quoted(s.Token)
		if _, err := fmt.Fprintln(c.App.Writer, text); err != nil {
			return unusable("%s: write: %v", r.verb, err)
		}
		return nil
	}
	return r.print(c, s, text)
}

// quoted is a word for sh that stands for exactly this text.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// attach holds a session. A signal ends this process, and the daemon sees that.
func attach(c *cli.Context, r *remote, req wire.OpenSession) error {
	if req.Name == "" {
		req.Name = handles.NewSessionName() // the same one when it is tried again
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if isPipe(os.Stdin) {
		go func() { // ends with stdin, or with this process
			untilEOF(os.Stdin)
			cancel(errStdinEnded)
		}()
	}
	printed := false
	err := r.do(func() error {
		return r.Attach(ctx, req, func(s *handles.Session) error {
			if printed { // attached again after a restart of the daemon
				return nil
			}
			printed = true
			return r.printOpened(c, s)
		})
	})
	if errors.Is(context.Cause(ctx), errStdinEnded) {
		return nil
	}
	return err
}

var errStdinEnded = errors.New("stdin ended")

// sessionName is the only argument, or the session of -S, or none.
func sessionName(c *cli.Context, r *remote) (string, error) {
	switch c.NArg() {
	case 0:
		return c.String("session"), nil
	case 1:
		return c.Args().First(), nil
	}
	return "", usagef("%s: one session at a time, not %q", r.verb, c.Args().Slice())
}

const sessionListHelp = `Lists the open sessions by name, or with --all also the closed ones.

Examples:
   procsup session list
   procsup session list --all --json | jq -r '.sessions[].name'`

func doSessionList(c *cli.Context, r *remote) error {
	if err := noArguments(c); err != nil {
		return err
	}
	var l *wire.SessionList
	if err := r.do(func() (err error) { l, err = r.Sessions(context.Background(), c.Bool("all")); return err }); err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, l)
	}
	t := tabwriter.NewWriter(c.App.Writer, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "SESSION\tSTATUS\tLIVE\tPENDING\tRUN\tBOUND TO")
	for i := range l.Sessions {
		s := &l.Sessions[i]
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\n", s.Name, s.Status, s.Live, s.Pending, dash(string(s.Active)), dash(bound(s)))
	}
	if err := t.Flush(); err != nil {
		return unusable("session list: write: %v", err)
	}
	return nil
}

func bound(s *handles.Session) string {
	switch {
	case s.Attached:
		return "a connection"
	case s.Bind != nil:
		return fmt.Sprintf("process %d", s.Bind.PID)
	}
	return ""
}

const sessionShowHelp = `Prints all that is known of a session: NAME, -S, or PROCSUP_SESSION.

Examples:
   procsup session show agent
   procsup session show agent --json | jq .pending`

func doSessionShow(c *cli.Context, r *remote) error {
	name, err := sessionName(c, r)
	if err != nil {
		return err
	}
	if name == "" {
		name = r.session
	}
	var s *handles.Session
	if err := r.do(func() (err error) { s, err = r.ShowSession(context.Background(), name); return err }); err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, s)
	}
	return writeSession(c, s)
}

func writeSession(c *cli.Context, s *handles.Session) error {
	t := tabwriter.NewWriter(c.App.Writer, 0, 8, 2, ' ', 0)
	row := func(name string, value any) {
		if v := fmt.Sprint(value); v != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, v)
		}
	}
	row("session", s.Name)
	row("status", s.Status)
	row("why", plain(s.Why, 0))
	row("generation", s.Generation)
	row("opened", s.CreatedAt.Local().Format(time.DateTime))
	row("bound to", bound(s))
	row("opened in", s.Creator)
	row("parent run", s.Active)
	row("live", s.Live)
	row("pending", s.Pending)
	for _, sc := range s.Scopes {
		row("scope", scopeText(&sc))
	}
	if err := t.Flush(); err != nil {
		return unusable("session show: write: %v", err)
	}
	return nil
}
