package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/wire"
)

const (
	closeHelp = `Ends every command of a session, drops what is owed to it, and closes it: it
takes no new work. Prints what was ended, dropped and left. A closed one is left
as it is.
` + endCodes + `
Examples:
   procsup session close agent
   procsup session close agent --grace 10s --json | jq .ended
   trap 'procsup session close "$PROCSUP_SESSION"' EXIT`
	clearHelp = `Ends every command of a session and drops what is owed to it. It stays open.
` + endCodes + `
Examples:
   procsup session clear agent`
	resetHelp = `Ends every command of a session, drops what is owed to it, and begins its next
generation: its scopes, its token and what it was bound to are void.
` + endCodes + `
Examples:
   procsup session reset agent`
	deleteHelp = `Closes a session and forgets it; the records of its handles stay. From within a
session only that one and those opened from within it can be deleted.
` + endCodes + `
Examples:
   procsup session delete agent`
	endCodes = `
Exit codes: 0 nothing is left · 75 something was not ended in time, it is named ·
66 no such session · 73 refused · 69 no daemon · 64 usage.
`
)

type endSession func(*remote, context.Context, string, wire.EndSession) (*wire.SessionReport, error)

func (r *remote) closeSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return r.CloseSession(ctx, name, req)
}

func (r *remote) clearSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return r.ClearSession(ctx, name, req)
}

func (r *remote) resetSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return r.ResetSession(ctx, name, req)
}

func (r *remote) deleteSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return r.DeleteSession(ctx, name, req)
}

// endCommand is a verb that ends the work of a session.
func endCommand(name, usage, help string, do endSession) *cli.Command {
	return verb(name, usage, "[NAME]", help, func(c *cli.Context, r *remote) error {
		session, err := sessionName(c, r)
		if err != nil {
			return err
		}
		if session == "" {
			session = r.session
		}
		if session == "" {
			return usagef("%s: which session? procsup session list shows them", r.verb)
		}
		req := wire.EndSession{Reason: c.String("reason")}
		if req.GraceMS, err = millisFlag(c, "grace"); err != nil {
			return err
		}
		return r.endWork(c, session, req, do)
	}, endFlags()...)
}

func endFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "grace", Usage: "at most `D` between the stop signal and KILL (default: as each was started)"},
		&cli.StringFlag{Name: "reason", Usage: "`WHY`, for the records"},
	}
}

// endWork ends the work of a session and prints the report.
func (r *remote) endWork(c *cli.Context, session string, req wire.EndSession, do endSession) error {
	var rep *wire.SessionReport
	if err := r.do(func() (err error) { rep, err = do(r, context.Background(), session, req); return err }); err != nil {
		return err
	}
	text := fmt.Sprintf("%s: ended %s, dropped %s", rep.Session, count(len(rep.Ended), "handle", "handles"), count(len(rep.Dropped), "result", "results"))
	text += idLines("ended", rep.Ended) + idLines("dropped", rep.Dropped) + idLines("still active", rep.StillActive) + processLines(rep.StillRunning)
	if err := r.print(c, rep, text); err != nil {
		return err
	}
	if rep.Error != "" {
		return &exitError{code: codeOf(rep.Error), msg: fmt.Sprintf("%s: %s: not all of it was ended in time: %s", r.verb, rep.Session, still(rep.StillActive, rep.StillRunning))}
	}
	return nil
}

func idLines(what string, ids []handles.ID) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "\n  %-13s %s", what, id)
	}
	return b.String()
}

func processLines(ps []handles.Process) string {
	var b strings.Builder
	for _, p := range ps {
		fmt.Fprintf(&b, "\n  %-13s %s", "still running", plain(fmt.Sprintf("%d (%s) %s", p.PID, p.Command, p.Why), 120))
	}
	return b.String()
}

// still names what is left, in one line.
func still(ids []handles.ID, ps []handles.Process) string {
	var s []string
	for _, id := range ids {
		s = append(s, string(id))
	}
	for _, p := range ps {
		s = append(s, plain(fmt.Sprintf("process %d (%s)", p.PID, p.Command), 120))
	}
	return strings.Join(s, ", ")
}
