package main

import (
	"os"

	"procsup/platform"
)

// caught are the signals that ask procsup to stop, caught from early on: a
// short command is over in the time that this takes.
type caught struct {
	c     chan os.Signal
	ready chan struct{}      // closed once they are caught
	was   platform.Inherited // after that
}

// catchEarly begins to catch them beside what the caller goes on to do.
func catchEarly() *caught {
	s := &caught{c: make(chan os.Signal, 64), ready: make(chan struct{})}
	go func() { // bounded; wait waits for it
		s.was = platform.InheritedSignals()
		s.was.Restore()
		platform.CatchStops(s.c)
		close(s.ready)
	}()
	return s
}

// wait returns once they are caught, with what was there before.
func (s *caught) wait() platform.Inherited {
	<-s.ready
	return s.was
}
