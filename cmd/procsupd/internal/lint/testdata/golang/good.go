package golang

import (
	"context"
	"log"
	"sync"
	"testing"

	"procsup/pgroup"
	"procsup/supervisor"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// S2-31: an early return and a panic release too.
func deferred(c pgroup.Command, work func() error) error {
	g, err := pgroup.Start(c, pgroup.Config{})
	if err != nil {
		return err
	}
	defer g.Stop(pgroup.Ladder{}, nil)
	return work()
}

func inALiteral(c pgroup.Command, work func() error) error {
	g, err := pgroup.Start(c, pgroup.Config{})
	if err != nil {
		return err
	}
	defer func() {
		g.Stop(pgroup.Ladder{}, nil)
		if _, err := g.Reap(); err != nil {
			log.Print(err)
		}
	}()
	return work()
}

func straight(c pgroup.Command) (pgroup.End, error) {
	g, err := pgroup.Start(c, pgroup.Config{})
	if err != nil {
		return pgroup.End{}, err
	}
	if testing.Verbose() {
		log.Println("runs", g.PID())
	}
	<-g.Done()
	return g.Reap()
}

func inATest(t *testing.T, c pgroup.Command) {
	g, err := pgroup.Start(c, pgroup.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Stop(pgroup.Ladder{}, nil) })
	if g.PID() == 0 {
		t.Fatal("no pid")
	}
}

func handedOn(c pgroup.Command) (*pgroup.Group, error) {
	g, err := pgroup.Start(c, pgroup.Config{})
	if err != nil {
		return nil, err
	}
	return g, nil
}

type owner struct{ g *pgroup.Group }

func (o *owner) start(c pgroup.Command) (err error) {
	o.g, err = pgroup.Start(c, pgroup.Config{})
	return err
}

func (o *owner) keep(c pgroup.Command) error {
	g, err := pgroup.Start(c, pgroup.Config{})
	if err == nil {
		o.g = g
	}
	return err
}

func several(list []pgroup.Command) error {
	var groups []*pgroup.Group
	defer func() {
		for _, g := range groups {
			g.Stop(pgroup.Ladder{}, nil)
		}
	}()
	for _, c := range list {
		g, err := pgroup.Start(c, pgroup.Config{})
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	return nil
}

func inARoutine(c pgroup.Command, wg *sync.WaitGroup) error {
	g, err := pgroup.Start(c, pgroup.Config{})
	if err != nil {
		return err
	}
	wg.Go(func() { _, _ = g.Reap() })
	return nil
}

func embedded(ctx context.Context, dir string) error {
	s, err := supervisor.Open(ctx, supervisor.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Start(ctx, wire.Start{})
	return err
}

func cancelled(ctx context.Context, c *client.Client, work func() error) error {
	st, err := c.Start(ctx, wire.Start{})
	if err != nil {
		return err
	}
	id := string(st.HandleID)
	defer c.Cancel(context.WithoutCancel(ctx), id, wire.Cancel{})
	return work()
}

func awaited(ctx context.Context, c *client.Client) error {
	st, err := c.Start(ctx, wire.Start{})
	if err != nil {
		return err
	}
	_, err = c.Wait(ctx, string(st.HandleID), 0)
	return err
}

func ignored(c pgroup.Command) {
	//procsup-lint:ignore long-running-without-cleanup it lives as long as the machine
	_, _ = pgroup.Start(c, pgroup.Config{})
}
