package capture

import (
	"context"
	"errors"
)

// A Follower reads a stream from some offset on and waits for more. It is for
// one goroutine at a time; close it.
type Follower struct {
	s       *Stream
	pos     int64
	passed  int64 // guarded by s.mu
	release func()
}

// Follow returns a reader that begins at from. With [Config].Window the
// command does not get further ahead of it than that, until it is closed.
func (s *Stream) Follow(from int64) *Follower {
	f := &Follower{s: s, pos: from, passed: from, release: s.spool.hold()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers == nil {
		s.followers = make(map[*Follower]struct{})
	}
	s.followers[f] = struct{}{}
	return f
}

// Offset returns where the next Read begins.
func (f *Follower) Offset() int64 { return f.pos }

// Read reads what comes next, or waits for it until ctx ends, which costs no
// byte. At bytes that were not kept it returns *Omitted once and goes on behind
// them; at the end io.EOF. To read again is to say that what was read before
// has been dealt with.
func (f *Follower) Read(ctx context.Context, p []byte) (int, error) {
	f.Advance()
	n, err := f.read(p)
	for n == 0 && err == nil && len(p) > 0 {
		bell := f.s.Bell()
		if n, err = f.read(p); n > 0 || err != nil {
			break
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		n, err = f.read(p)
	}
	return n, err
}

func (f *Follower) read(p []byte) (int, error) {
	n, err := f.s.ReadAt(p, f.pos)
	f.pos += int64(n)
	if gap := (*Omitted)(nil); errors.As(err, &gap) {
		f.pos = gap.To
	}
	return n, err
}

// Advance says before the next Read that all that was read has been dealt
// with, so that the window opens.
func (f *Follower) Advance() {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.passed != f.pos {
		f.passed = f.pos
		f.s.goOn()
	}
}

// Close ends the follower; the command waits for it no more.
func (f *Follower) Close() error {
	f.s.mu.Lock()
	delete(f.s.followers, f)
	f.s.goOn()
	f.s.mu.Unlock()
	f.release()
	return nil
}

// awaitWindow waits until the stream may grow and returns by how much, at most
// n. It returns 0 when quit is closed first, n when nobody is waited for any more.
func (s *Stream) awaitWindow(n int64, quit <-chan struct{}) int64 {
	if s.log.cfg.Window <= 0 {
		return n
	}
	defer s.heldUp(false)
	for {
		s.mu.Lock()
		left := n
		for f := range s.followers {
			left = min(left, f.passed+s.log.cfg.Window-s.total.Load())
		}
		if left > 0 || s.ended {
			s.mu.Unlock()
			return max(left, 1)
		}
		room := s.moved()
		s.mu.Unlock()
		s.heldUp(true)
		select {
		case <-room:
		case <-quit:
			return 0
		case <-s.log.rush:
			return n
		}
	}
}

// heldUp notes whether the stream waits for its followers.
func (s *Stream) heldUp(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held && !yes {
		s.last.Store(s.log.now()) // what is next comes only now
	}
	s.held = yes
}

// held reports whether a stream waits for its followers.
func (l *Log) held() bool {
	for _, s := range l.streams {
		s.mu.Lock()
		held := s.held
		s.mu.Unlock()
		if held {
			return true
		}
	}
	return false
}

// hurry makes followers be waited for no more.
func (l *Log) hurry() { l.rushed.Do(func() { close(l.rush) }) }
