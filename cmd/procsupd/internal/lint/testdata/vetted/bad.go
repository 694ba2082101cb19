// Package vetted is input for the lint, small enough for go vet.
package vetted

import "procsup/pgroup"

type groups struct{ one *pgroup.Group }

func never(c pgroup.Command) (int, error) {
	g, err := pgroup.Start(c, pgroup.Config{}) // want NOCLEAN g
	if err != nil {
		return 0, err
	}
	return g.PID(), nil
}

func early(c pgroup.Command, work func() error) error {
	g, err := pgroup.Start(c, pgroup.Config{}) // want NOTRAP g
	if err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	g.Stop(pgroup.Ladder{}, nil)
	return nil
}

func (o *groups) kept(c pgroup.Command) (err error) {
	o.one, err = pgroup.Start(c, pgroup.Config{})
	return err
}

func ignored(c pgroup.Command) {
	_, _ = pgroup.Start(c, pgroup.Config{}) //procsup-lint:ignore long-running-without-cleanup it lives as long as the machine
}
