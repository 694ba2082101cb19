package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/supervisor/wire"
)

const idleHelp = `Says whether nothing of the session runs any more, from its state. --wait waits for
that. --expect names handles that should have been delivered by now: those that
are unknown, still run, or are owed and not acknowledged are missing.

Exit codes: 0 idle, nothing missing · 73 something expected is missing · 75 not
idle, now or within the timeout · 66 no such session · 69 no daemon · 64 usage.

Examples:
   procsup idle -S agent
   procsup idle -S agent --wait --timeout 10m
   procsup idle -S agent --wait --expect $a,$b --json | jq .missing`

func idleCommand() *cli.Command {
	return verb("idle", "say whether a session is quiet", "", idleHelp, doIdle,
		&cli.BoolFlag{Name: "wait", Usage: "wait until it is"},
		&cli.StringFlag{Name: "timeout", Usage: "with --wait: at most `D`, then exit 75"},
		&cli.StringSliceFlag{Name: "expect", Usage: "`H1,H2…`: what should have been delivered (repeatable)"},
	)
}

func doIdle(c *cli.Context, r *remote) error {
	if err := noArguments(c); err != nil {
		return err
	}
	ms, err := millisFlag(c, "timeout")
	if err != nil {
		return err
	}
	var wait time.Duration
	switch {
	case ms != nil && !c.Bool("wait"):
		return usagef("idle: --timeout is for --wait")
	case ms != nil:
		wait = time.Duration(*ms) * time.Millisecond
	case c.Bool("wait"):
		wait = -1
	}
	var expect []handles.ID
	for _, list := range c.StringSlice("expect") {
		for id := range strings.SplitSeq(list, ",") {
			if id = strings.TrimSpace(id); id != "" {
				expect = append(expect, handles.ID(id))
			}
		}
	}
	var i *wire.Idle
	if wait != 0 {
		defer waiting(os.Stderr, "the session to be quiet")()
	}
	if err := r.do(func() (err error) { i, err = r.Idle(context.Background(), wait, expect); return err }); err != nil {
		return err
	}
	if err := r.print(c, i, idleText(i)); err != nil {
		return err
	}
	switch {
	case !i.Idle:
		return &exitError{code: exitTimedOut, msg: "idle: the session is busy"}
	case len(i.Missing) > 0:
		return &exitError{code: exitRefused, msg: fmt.Sprintf("idle: expected and not delivered: %s; procsup show tells how each stands", still(i.Missing, nil))}
	}
	return nil
}

func idleText(i *wire.Idle) string {
	s := "idle"
	if !i.Idle {
		s = fmt.Sprintf("busy: %s, %s", count(i.Runs, "run", "runs"), count(i.Handles, "handle", "handles"))
	}
	s += fmt.Sprintf("; %s owed", count(i.Pending, "end is", "ends are"))
	return s + idLines("missing", i.Missing) + idLines("not expected", i.Unexpected)
}
