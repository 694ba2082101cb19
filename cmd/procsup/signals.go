package main

import (
	"os"

	"procsup/platform"
)

// caught are the signals that ask procsup to stop, caught from early on: a
// short command is over in the time that this takes.
type caught struct {
	c     chan os.Signal
	ready chan platform.Inherited
}

// catchEarly begins to catch them beside what the caller goes on to do.
func catchEarly() *caught {
	s := &caught{c: make(chan os.Signal, 64), ready: make(chan platform.Inherited, 1)}
	go func() { // bounded; wait waits for it
		was := platform.InheritedSignals()
		was.Restore()
		platform.CatchStops(s.c)
		s.ready <- was
	}()
	return s
}

// wait returns once they are caught, with what was there before. It may be
// called once.
func (s *caught) wait() platform.Inherited { return <-s.ready }
