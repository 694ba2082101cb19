package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/wire"
)

const scopeHelp = `A scope is one token over several commands of a session: cancelling it ends all
that were started in it, and in the scopes below it, and nothing is started in it
any more.

Examples:
   procsup scope open build
   procsup start --scope build -- make
   procsup scope cancel build`

func scopeCommand() *cli.Command {
	return &cli.Command{
		Name: "scope", Usage: "cancel several commands by one token", Description: scopeHelp,
		OnUsageError: onUsageError, Action: unknownAction,
		Subcommands: []*cli.Command{
			verb("open", "open a scope of a session", "NAME", scopeOpenHelp, doScopeOpen,
				&cli.StringFlag{Name: "parent", Usage: "below the scope `G`: cancelling that cancels this"}),
			verb("cancel", "end every command of a scope", "NAME", scopeCancelHelp, doScopeCancel, endFlags()...),
			verb("list", "list the scopes of a session", "", scopeListHelp, doScopeList),
		},
	}
}

const scopeOpenHelp = `Opens a scope and prints its name. One that is open is left as it is; a cancelled
one is not opened again.

Exit codes: 0 · 73 it was cancelled · 66 no such parent · 69 no daemon · 64 usage.

Examples:
   procsup scope open build
   procsup scope open tests --parent build -S agent`

func doScopeOpen(c *cli.Context, r *remote) error {
	name, err := scopeName(c)
	if err != nil {
		return err
	}
	var sc *handles.Scope
	if err := r.do(func() (err error) { sc, err = r.OpenScope(context.Background(), name, c.String("parent")); return err }); err != nil {
		return err
	}
	return r.print(c, sc, sc.Name)
}

func scopeName(c *cli.Context) (string, error) {
	if c.NArg() != 1 || c.Args().First() == "" {
		return "", usagef("%s: the name of one scope is needed, not %q", verbName(c), c.Args().Slice())
	}
	return c.Args().First(), nil
}

const scopeCancelHelp = `Ends every command that was started in the scope, or in one below it, and returns
when they have ended. Nothing is started in it any more.

Exit codes: 0 · 75 something was not ended in time · 66 no such scope · 69 no
daemon · 64 usage.

Examples:
   procsup scope cancel build
   procsup scope cancel build --grace 10s --json | jq .ended`

func doScopeCancel(c *cli.Context, r *remote) error {
	name, err := scopeName(c)
	if err != nil {
		return err
	}
	req := wire.EndSession{Reason: c.String("reason")}
	if req.GraceMS, err = millisFlag(c, "grace"); err != nil {
		return err
	}
	var rep *wire.ScopeReport
	if err := r.do(func() (err error) { rep, err = r.CancelScope(context.Background(), name, req); return err }); err != nil {
		return err
	}
	text := fmt.Sprintf("cancelled %s: ended %s", strings.Join(rep.Cancelled, ", "), count(len(rep.Ended), "handle", "handles"))
	if err := r.print(c, rep, text+idLines("ended", rep.Ended)+idLines("still active", rep.Still)); err != nil {
		return err
	}
	if len(rep.Still) > 0 {
		return &exitError{code: exitTimedOut, msg: fmt.Sprintf("scope cancel: %s: not ended in time: %s", name, still(rep.Still, nil))}
	}
	return nil
}

const scopeListHelp = `Lists the scopes of a session as they were opened.

Examples:
   procsup scope list -S agent
   procsup scope list -S agent --json | jq -r '.scopes[].name'`

func doScopeList(c *cli.Context, r *remote) error {
	if err := noArguments(c); err != nil {
		return err
	}
	var l *wire.Scopes
	if err := r.do(func() (err error) { l, err = r.Scopes(context.Background()); return err }); err != nil {
		return err
	}
	var rows []string
	for i := range l.Scopes {
		rows = append(rows, scopeText(&l.Scopes[i]))
	}
	return r.print(c, l, strings.Join(rows, "\n"))
}

// scopeText is a scope in one line.
func scopeText(s *handles.Scope) string {
	text := s.Name
	if s.Parent != "" {
		text += " (below " + s.Parent + ")"
	}
	if s.Cancelled != 0 {
		text += " cancelled"
	}
	return text
}
