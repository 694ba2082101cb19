package capture

import (
	"io"
	"time"
)

// Feed returns a writer to src for bytes that come from no pipe, such as a
// pty's. Its Write never fails for lack of space: what cannot be kept is
// counted. It fails with ErrClosed once the stream has ended. The bytes are not
// waited for by Drain: write all of them before.
func (l *Log) Feed(src Source) io.Writer {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.streams[src]
	if err := l.open(s); err != nil {
		return failed{err}
	}
	return feed{s}
}

// failed is a writer that tells why there is none.
type failed struct{ err error }

func (f failed) Write([]byte) (int, error) { return 0, f.err }

// feed is the writer that Feed returns.
type feed struct{ s *Stream }

func (f feed) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		if f.s.Ended() {
			return done, ErrClosed
		}
		n := int(f.s.awaitWindow(int64(len(p)-done), nil))
		f.s.wmu.Lock()
		f.s.put(p[done : done+n])
		f.s.restLater()
		f.s.wmu.Unlock()
		done += n
	}
	return len(p), nil
}

// restLater gives back what only a busy stream needs, once it has been quiet
// for a while. s.wmu is held.
func (s *Stream) restLater() {
	if s.w.idler != nil || s.w.closed {
		return
	}
	s.w.idler = time.AfterFunc(idleClose, func() {
		s.wmu.Lock()
		defer s.wmu.Unlock()
		left := idleClose - time.Since(s.LastActivity())
		switch {
		case s.w.idler == nil: // closed meanwhile
			return
		case left > 0:
			s.w.idler.Reset(left)
			return
		}
		s.w.idler = nil
		s.rest()
		s.log.index.idle()
		for _, p := range s.log.pumpsOf(s) {
			p.shrink()
		}
	})
}
