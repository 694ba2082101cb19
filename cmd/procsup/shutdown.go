package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"procsup/supervisor/wire"
)

const shutdownHelp = `Ends all work of a session, or with --daemon of the daemon and the daemon itself,
within the grace and a moment, and says what was ended, dropped and left. A
session is closed afterwards: it takes no new work.

A session whose parent run is active is refused as busy_session: cancel that and
wait for it first. --require-idle refuses while anything runs or is owed.

What is owed to a session is dropped when that is shut down, and stays owed when
the daemon is: it is delivered after the next start.

Exit codes: 0 nothing is left · 75 something was not ended in time, it is named ·
73 refused · 66 no such session · 69 no daemon · 64 usage.

Examples:
   procsup shutdown -S agent --grace 10s
   procsup shutdown -S agent --require-idle
   procsup shutdown --daemon --json | jq .ended`

func shutdownCommand() *cli.Command {
	return verb("shutdown", "end a session or the daemon within a bound", "", shutdownHelp, doShutdown,
		&cli.BoolFlag{Name: "daemon", Usage: "the daemon, with every session"},
		&cli.StringFlag{Name: "grace", Usage: "at most `D` between the stop signal and KILL (default: as each was started)"},
		&cli.BoolFlag{Name: "require-idle", Usage: "refuse while something runs or is owed"},
		&cli.StringFlag{Name: "reason", Usage: "`WHY`, for the records"},
	)
}

func doShutdown(c *cli.Context, r *remote) error {
	if err := noArguments(c); err != nil {
		return err
	}
	ms, err := millisFlag(c, "grace")
	if err != nil {
		return err
	}
	if c.Bool("daemon") {
		if c.IsSet("session") {
			return usagef("shutdown: either --session or --daemon")
		}
		return r.shutdownDaemon(c, wire.Shutdown{Report: true, GraceMS: ms, RequireIdle: c.Bool("require-idle"), Reason: c.String("reason")})
	}
	if r.session == "" {
		return usagef("shutdown: of what? -S SESSION or --daemon")
	}
	req := wire.EndSession{GraceMS: ms, RequireIdle: c.Bool("require-idle"), Reason: c.String("reason")}
	return r.endWork(c, r.session, req, (*remote).shutdownSession)
}

func (r *remote) shutdownSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return r.ShutdownSession(ctx, name, req)
}

// shutdownDaemon does not start a daemon to end it.
func (r *remote) shutdownDaemon(c *cli.Context, req wire.Shutdown) error {
	rep, err := r.ShutdownReport(context.Background(), req)
	if err != nil {
		return r.explain(err)
	}
	text := fmt.Sprintf("the daemon has ended: ended %s; %s owed still", count(len(rep.Ended), "handle", "handles"), count(rep.Owed, "result is", "results are"))
	if err := r.print(c, rep, text+idLines("ended", rep.Ended)+idLines("still active", rep.StillActive)+processLines(rep.StillRunning)); err != nil {
		return err
	}
	if rep.Error != "" {
		return &exitError{code: codeOf(rep.Error), msg: "shutdown: not all of it was ended in time: " + still(rep.StillActive, rep.StillRunning)}
	}
	return nil
}
