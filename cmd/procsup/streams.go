package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/outcome"
)

const (
	drainIdle = 50 * time.Millisecond
	drainMax  = 2 * time.Second
	// passWindow is how far the command may run ahead of whoever reads our
	// output when no copy is kept, else half of what is kept: a reader that
	// stops costs it nothing before. Then it waits, as with a pipe, so that
	// nothing is lost.
	passWindow = 32 << 20
	// passKept is what is kept of each stream when it only passes through.
	passKept = 64 << 20
)

// streams are the standard streams of the command: inherited, captured, or a
// terminal of its own.
type streams struct {
	opt    *options
	stdin  *os.File     // nil: /dev/null
	log    *capture.Log // nil: not captured
	events *events      // nil: none are made
	ends   []*os.File   // the command's ends of the pipes, ours until it has them
	pty    *relay       // nil: no --pty

	follow [2]*capture.Follower // of what is passed through, until started
	copies sync.WaitGroup
	failed atomic.Pointer[string] // why a stream could not be passed on; nil: it could, or its reader went away
	cancel context.CancelFunc     // ends the copies
	ctx    context.Context
}

// openStreams opens what the flags name; nothing has run yet.
func openStreams(o *options, signals *caught) (*streams, error) {
	s := &streams{opt: o}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var err error
	switch o.stdin {
	case "inherit":
		s.stdin = os.Stdin
	case "null":
	default:
		if s.stdin, err = signals.open(o.stdin, os.O_RDONLY, o.deadline); err != nil {
			return nil, unusableFile("--stdin", o.stdin, err)
		}
	}
	if s.events, err = openEvents(o); err != nil {
		return nil, err
	}
	if o.captures() {
		cfg := capture.Config{Dir: o.capture, MaxOutput: o.maxOutput}
		if s.events != nil {
			cfg.Published = s.events.captured
		}
		if !o.json {
			cfg.Window = max(o.maxOutput/2, 1)
			if o.capture == "" {
				cfg.MaxOutput, cfg.Window = passKept, passWindow
			}
		}
		if s.log, err = capture.Open(cfg); errors.Is(err, capture.ErrExists) {
			return nil, unusable("run: --capture: %v; it is of an earlier run: name another folder, or remove it", err)
		} else if err != nil {
			return nil, unusable("run: --capture: %v", err)
		}
	}
	if o.pty {
		if s.pty, err = openRelay(); err != nil {
			return nil, unusable("run: --pty: %v", err)
		}
	}
	return s, nil
}

// fill gives the command its streams.
func (s *streams) fill(c *pgroup.Command) error {
	c.Stdin, c.Stdout, c.Stderr = s.stdin, os.Stdout, os.Stderr
	switch {
	case s.pty != nil:
		c.Stdin, c.Stdout, c.Stderr = s.pty.slave, s.pty.slave, s.pty.slave
		c.Session, c.Terminal = true, true
		return nil
	case s.log != nil:
		var err error
		if c.Stdout, err = s.pipe(capture.Stdout); err != nil {
			return err
		}
		if !s.opt.merge {
			c.Stderr, err = s.pipe(capture.Stderr)
			return err
		}
	}
	if s.opt.merge {
		c.Stderr = c.Stdout
	}
	return nil
}

func (s *streams) pipe(src capture.Source) (*os.File, error) {
	if !s.opt.json { // before the first byte can come: none is moved on without it
		s.follow[src] = s.log.Stream(src).Follow(0)
	}
	w, err := s.log.Pipe(src)
	if err == nil {
		s.ends = append(s.ends, w)
	}
	return w, err
}

// started gives up the command's ends and begins to pass output through.
func (s *streams) started() {
	for _, f := range s.ends {
		f.Close()
	}
	if s.stdin != nil && s.stdin != os.Stdin {
		s.stdin.Close()
	}
	if s.pty != nil {
		s.pty.start(s.log, !s.opt.json)
		return
	}
	if s.log == nil || s.opt.json {
		return
	}
	s.pass(capture.Stdout, os.Stdout)
	s.pass(capture.Stderr, os.Stderr)
}

// pass copies one stream to ours at the pace of whoever reads it. When nobody
// reads it any more the command's pipe is closed, so that it gets SIGPIPE as
// it would have got it without us.
func (s *streams) pass(src capture.Source, to *os.File) {
	f := s.follow[src]
	if f == nil {
		return // merged
	}
	s.follow[src] = nil
	s.copies.Go(func() { // ends with the stream or by cancel; finish waits for it
		defer f.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := f.Read(s.ctx, buf)
			if _, werr := to.Write(buf[:n]); werr != nil {
				if !errors.Is(werr, syscall.EPIPE) {
					why := fmt.Sprintf("%v could not be passed on: %v", src, reason(werr))
					s.failed.Store(&why)
				}
				s.log.Refuse(src)
				return
			}
			var gap *capture.Omitted
			if err != nil && !errors.As(err, &gap) { // a gap is in the record
				return
			}
		}
	})
}

// finish drains what is still in the pipes after the tree was dealt with, and
// waits for whoever reads our output, as a shell would; not for long if the
// command was stopped, and not beyond the deadline. A signal that asks us to stop
// ends that. complete is false when a process out of reach keeps a
// stream open.
func (s *streams) finish(signals <-chan os.Signal, stopped bool, started time.Time) (complete, passedOn bool) {
	complete = true
	if s.pty != nil {
		s.pty.finish(drainIdle, drainMax)
	}
	if s.log == nil {
		return complete, true
	}
	drained, passed := make(chan struct{}), make(chan struct{})
	go func() { // ends with the pipes, or by cancel; then with the copies, or with us
		complete = s.log.Drain(s.ctx, drainIdle, drainMax)
		close(drained)
		s.copies.Wait()
		close(passed)
	}()
	var enough <-chan time.Time
	switch {
	case stopped: // without us the command would have been ended in the middle of a write
		enough = time.After(drainMax)
	case s.opt.deadline > 0:
		enough = time.After(time.Until(started.Add(s.opt.deadline)))
	}
	for {
		select {
		case <-passed:
			return complete, true
		case <-enough:
			s.cancel()
			<-drained
			return complete, false
		case sig := <-signals:
			if platform.ClassOf(sig.(syscall.Signal)) == platform.AsksStop {
				s.cancel()
				<-drained
				return complete, false
			}
		}
	}
}

// into writes what is known of the output into the record.
func (s *streams) into(r *handles.Record, complete bool) {
	if s.log == nil {
		return
	}
	r.Output = &handles.Output{Complete: complete}
	r.Output.Stdout = s.describe(capture.Stdout)
	if !s.opt.merge && s.pty == nil {
		r.Output.Stderr = s.describe(capture.Stderr)
	}
	if s.opt.json {
		r.Stdout = outcome.Text(s.log, capture.Stdout, inlineOutput)
		if r.Output.Stderr != nil {
			r.Stderr = outcome.Text(s.log, capture.Stderr, inlineOutput)
		}
	}
}

func (s *streams) describe(src capture.Source) *handles.StreamOutput {
	path := ""
	if s.opt.capture != "" {
		path = s.log.Path(src)
	}
	return outcome.Stream(s.log, src, path)
}

// lastActivity is when the command last wrote something, or since.
func (s *streams) lastActivity(since time.Time) time.Time {
	if t := s.log.LastActivity(); t.After(since) {
		return t
	}
	return since
}

// resized passes a change of our terminal's size to the command's own; false
// when it has none.
func (s *streams) resized() bool {
	if s.pty == nil {
		return false
	}
	s.pty.resize()
	return true
}

// own reports a signal that is our own affair: writing to a closed output
// raises PIPE here.
func (s *streams) own(sig syscall.Signal) bool { return s.log != nil && sig == syscall.SIGPIPE }

// close frees everything; a terminal that was made raw is restored.
func (s *streams) close() {
	s.cancel()
	for _, f := range s.follow {
		if f != nil {
			f.Close()
		}
	}
	if s.pty != nil {
		s.pty.close()
	}
	if s.log != nil {
		s.log.Close()
	}
}
