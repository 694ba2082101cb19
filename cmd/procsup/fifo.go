package main

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"procsup/platform"
)

// open opens a file that a flag names, before anything runs. A FIFO waits for its
// other end, as in a shell: a signal that asks us to stop ends that, and so does
// the deadline of the command, 0 = none.
func (s *caught) open(name string, flag int, deadline time.Duration) (*os.File, error) {
	if st, err := os.Stat(name); err != nil || st.Mode()&fs.ModeNamedPipe == 0 {
		return os.OpenFile(name, flag, 0o644)
	}
	s.wait() // whoever sees us wait for the other end may send a signal
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() { // ends when somebody opens the other end, or with us
		f, err := os.OpenFile(name, flag, 0)
		done <- opened{f, err}
	}()
	var late <-chan time.Time
	if deadline > 0 {
		late = time.After(deadline)
	}
	for {
		select {
		case o := <-done:
			return o.f, o.err
		case <-late:
			return nil, &exitError{code: exitDeadline, msg: fmt.Sprintf("run: deadline of %v is over, nothing was run: nobody opened the other end of the FIFO %s", deadline, name)}
		case got := <-s.c:
			if sig := got.(syscall.Signal); platform.ClassOf(sig) == platform.AsksStop {
				return nil, &exitError{code: 128 + int(sig), signal: sig, msg: fmt.Sprintf("run: %s while nobody had opened the other end of the FIFO %s: nothing was run", platform.SignalName(sig), name)}
			}
		}
	}
}

// unusableFile is the error of open, which may be an end of its own.
func unusableFile(flag, name string, err error) error {
	if e, ok := err.(*exitError); ok {
		return e
	}
	return unusable("run: %s %s: %v", flag, name, reason(err))
}
