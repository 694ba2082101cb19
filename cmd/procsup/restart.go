package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/wire"
)

const restartHelp = `Ends HANDLE as cancel does and starts the same command again, with the same
environment, directory and options, as a new handle whose id is printed. The two
never run side by side. A cancel that comes meanwhile wins: then nothing is
started. A handle that has ended is started again.

Exit codes: 0 started · 66 no such handle · 73 refused (it did not end, was
cancelled, or was started with --no-store-env) · 126, 127 as start · 125 procsup
itself, also when the answer was lost: look with procsup list before you retry.

Examples:
   h=$(procsup restart $h)
   procsup restart db --grace 30s`

func restartCommand() *cli.Command {
	return verb("restart", "end a handle and start the same command again", "HANDLE", restartHelp, doRestart, stopFlags()...)
}

func doRestart(c *cli.Context, r *remote) error {
	ref, err := oneHandle(c)
	if err != nil {
		return err
	}
	req, err := parseStop(c)
	if err != nil {
		return err
	}
	var a *wire.Started
	if err := r.do(func() (err error) { a, err = r.Restart(context.Background(), ref, req); return err }); err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c, a)
	} else {
		_, err = fmt.Fprintln(c.App.Writer, a.HandleID)
	}
	if err != nil {
		return unusable("restart: write the handle id %s: %v", a.HandleID, err)
	}
	if a.SpawnError != nil {
		return ended(&handles.Record{HandleID: a.HandleID, Status: a.Status, SpawnError: a.SpawnError, Error: a.Error})
	}
	return nil
}
