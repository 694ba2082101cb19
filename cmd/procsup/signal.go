package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/wire"
)

const signalHelp = `Sends a signal to the process group of HANDLE, or with --leader to its leader
alone. A command that dies of it has failed by itself; to end it use cancel.

Exit codes: 0 sent · 73 it has ended · 66 no such handle · 69 no daemon · 64 usage.

Examples:
   procsup signal nginx HUP
   procsup signal $h SIGUSR1 --leader`

func signalCommand() *cli.Command {
	return verb("signal", "send a signal to a handle", "HANDLE SIG", signalHelp, doSignal,
		&cli.BoolFlag{Name: "leader", Usage: "to the leader alone, not its group"},
	)
}

func doSignal(c *cli.Context, r *remote) error {
	if c.NArg() != 2 {
		return usagef("signal: a handle and a signal are needed, not %q", c.Args().Slice())
	}
	ref, name := c.Args().First(), c.Args().Get(1)
	if _, err := platform.ParseSignal(name); err != nil {
		return usagef("signal: %v", err)
	}
	var rec *handles.Record
	req := wire.Signal{Signal: name, Leader: c.Bool("leader")}
	if err := r.do(func() (err error) { rec, err = r.Signal(context.Background(), ref, req); return err }); err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, rec)
	}
	return nil
}
