// Package golang is input for the lint: each line with "want" leaves something
// behind.
package golang

import (
	"context"
	"errors"
	"fmt"

	"procsup/pgroup"
	"procsup/supervisor"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

var errNo = errors.New("no")

func never(c pgroup.Command) error {
	g, err := pgroup.Start(c, pgroup.Config{}) // want NOCLEAN g
	if err != nil {
		return err
	}
	fmt.Println("started", g.PID())
	return nil
}

func dropped(c pgroup.Command) {
	_, _ = pgroup.Start(c, pgroup.Config{}) // want NOCLEAN
}

func early(c pgroup.Command, work func() error) error {
	g, err := pgroup.Start(c, pgroup.Config{}) // want NOTRAP g
	if err != nil {
		return err
	}
	if err = work(); err != nil {
		return err
	}
	g.Stop(pgroup.Ladder{}, nil)
	_, err = g.Reap()
	return err
}

func lateDefer(c pgroup.Command, ok bool) error {
	g, err := pgroup.Start(c, pgroup.Config{}) // want NOTRAP g
	if err != nil {
		return err
	}
	if !ok {
		return errNo
	}
	defer g.Stop(pgroup.Ladder{}, nil)
	return nil
}

func sometimes(c pgroup.Command, ok bool) error {
	g, err := pgroup.Start(c, pgroup.Config{}) // want NOTRAP g
	if err == nil && ok {
		g.Stop(pgroup.Ladder{}, nil)
	}
	return err
}

func open(ctx context.Context, dir string) error {
	s, err := supervisor.Open(ctx, supervisor.Config{Dir: dir}) // want NOCLEAN s
	if err != nil {
		return err
	}
	st, err := s.Start(ctx, wire.Start{}) // want NOCLEAN st
	if err != nil {
		return err
	}
	fmt.Println(st.HandleID)
	return nil
}

func closing(ctx context.Context, c *client.Client) error {
	defer c.Close()                       // lets go of the connection only
	st, err := c.Start(ctx, wire.Start{}) // want NOCLEAN st
	if err != nil {
		return err
	}
	_, err = c.Show(ctx, string(st.HandleID))
	return err
}

func two(ctx context.Context, c *client.Client) error {
	a, err := c.Start(ctx, wire.Start{})
	if err != nil {
		return err
	}
	defer c.Cancel(ctx, string(a.HandleID), wire.Cancel{})
	b, err := c.Start(ctx, wire.Start{}) // want NOCLEAN b
	if err != nil {
		return err
	}
	_, err = c.Signal(ctx, string(b.HandleID), wire.Signal{})
	return err
}
