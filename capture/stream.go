package capture

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A Stream is one of the two outputs of a command.
type Stream struct {
	log   *Log
	src   Source
	spool *spool

	total atomic.Int64 // published bytes: all that was written, kept or not
	last  atomic.Int64 // when the last byte came, ns since log.epoch
	eager atomic.Bool  // somebody waits: do not batch

	wmu sync.Mutex // one writer at a time: a pump or a Feed
	w   writer     // guarded by wmu

	mu        sync.Mutex // guards what follows; taken after wmu, never the other way
	bell      chan struct{}
	room      chan struct{} // closed when a follower or matcher has moved on
	holes     ranges
	unkept    Range // was only in memory when the spool was closed for good
	missing   string
	tail      *tail // the newest bytes while the spool cannot take them
	pipes     int   // pipes not at their end
	inUse     bool
	held      bool // its command waits for followers
	ended     bool
	followers map[*Follower]struct{}
	scans     map[*scan]struct{}
}

func newStream(l *Log, src Source) *Stream {
	s := &Stream{log: l, src: src}
	s.spool = newSpool(l.cfg.Dir, src)
	return s
}

// Source says which of the two streams it is.
func (s *Stream) Source() Source { return s.src }

// Extent returns what there is of the stream now.
func (s *Stream) Extent() Extent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Extent{
		Total:   s.total.Load(),
		Omitted: append(ranges(nil), s.holes...).add(s.unkept),
		Missing: s.missing,
	}
}

// Bell returns a channel that is closed at the next publication, gap or end.
// Take it, look, then wait: what comes after the call rings it. While a bell
// is out, the stream's bytes are not batched.
func (s *Stream) Bell() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bell == nil {
		s.bell = make(chan struct{})
		s.eager.Store(true)
	}
	return s.bell
}

// ring wakes all who hold the bell. s.mu is held.
func (s *Stream) ring() {
	if s.bell != nil {
		close(s.bell)
		s.bell = nil
		s.eager.Store(false)
	}
}

// Ended reports whether no byte will come any more.
func (s *Stream) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// LastActivity returns when the last byte came, with a monotonic reading; the
// time of Open when none has. Of a log that was resumed it is that of the last byte
// in its files, 1970 without one. A no-output timeout needs no bell: sleep until
// LastActivity plus the timeout, look again, and either fire or sleep on.
func (s *Stream) LastActivity() time.Time {
	return s.log.epoch.Add(time.Duration(s.last.Load()))
}

// ReadAt reads from the offset off. It returns fewer bytes than asked for at
// the end of what is there or before omitted bytes, and 0, nil when nothing is
// there yet. At omitted bytes the error is *Omitted; it is io.EOF at the end
// of a stream that has ended, and only there.
func (s *Stream) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.window(p, off)
	if n == 0 || err != nil {
		return 0, err
	}
	if k := s.fromTail(p[:n], off); k > 0 {
		return k, nil
	}
	want := n
	n, err = s.spool.readAt(p[:want], off)
	if n == 0 {
		return s.unreadable(Range{off, off + int64(want)}, err)
	}
	// A hole is announced before it is punched: if none is known now, what
	// was read is what the command wrote.
	s.mu.Lock()
	defer s.mu.Unlock()
	if hole, in := s.holes.at(off); in {
		return 0, &Omitted{Range{off, hole.To}}
	}
	return int(s.holes.next(off, off+int64(n)) - off), nil
}

// window returns how many bytes at off can be read in one piece, at most len(p).
func (s *Stream) window(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := s.total.Load()
	if off < 0 || off >= total {
		if s.ended && off >= 0 {
			return 0, io.EOF
		}
		return 0, nil
	}
	if hole, in := s.holes.at(off); in {
		return 0, &Omitted{Range{off, hole.To}}
	}
	limit := min(total, off+int64(len(p)))
	if s.tail != nil && off < s.tail.from {
		limit = min(limit, s.tail.from)
	}
	return int(s.holes.next(off, limit) - off), nil
}

// fromTail reads from the bytes kept in memory while the spool is unusable.
func (s *Stream) fromTail(p []byte, off int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tail == nil {
		return 0
	}
	return s.tail.readAt(p, off)
}

// unreadable turns bytes that should be in the spool and are not into a gap:
// the file was deleted or cut by somebody else.
func (s *Stream) unreadable(r Range, err error) (int, error) {
	why := lossTruncated
	if err != nil && err != io.EOF {
		if why = lossOf(err); why == lossWrite {
			return 0, err // not known to be gone
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if hole, in := s.holes.at(r.From); in {
		return 0, &Omitted{Range{r.From, hole.To}}
	}
	if s.tail != nil && r.From >= s.tail.from {
		return 0, nil // it went there meanwhile
	}
	s.addHole(r)
	s.missing = why.String()
	return 0, &Omitted{r}
}

// lose marks bytes as not kept and says why.
func (s *Stream) lose(r Range, why loss) {
	if r.From >= r.To {
		return
	}
	s.mu.Lock()
	s.addHole(r)
	if why != lossLimit {
		s.missing = why.String()
	}
	s.mu.Unlock()
	s.log.index.gap(s.src, r, why)
}

// addHole marks bytes as omitted. s.mu is held.
func (s *Stream) addHole(r Range) {
	before := s.holes.sum()
	s.holes = s.holes.add(r)
	s.log.keep(before - s.holes.sum())
}

// publish makes n more bytes visible and wakes who waits for them.
func (s *Stream) publish(n int64) {
	now := s.log.now()
	off := s.total.Load()
	s.last.Store(now)
	due := s.log.index.add(s.src, off, n, now)
	s.total.Store(off + n)
	s.log.keep(n)
	if s.log.cfg.Published != nil {
		s.log.cfg.Published(s.src, off, off+n)
	}
	if s.eager.Load() {
		s.mu.Lock()
		s.ring()
		s.mu.Unlock()
		runtime.Gosched() // who was woken runs here and now, not when this is done
	}
	if due {
		s.log.index.write(now)
	}
}

// use notes that the stream will have bytes.
func (s *Stream) use() {
	s.mu.Lock()
	s.inUse = true
	s.mu.Unlock()
}

func (s *Stream) used() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse
}

func (s *Stream) addPipe() {
	s.mu.Lock()
	s.pipes++
	s.mu.Unlock()
}

// closePipe notes that a pipe gave all it had; the last one ends the stream.
func (s *Stream) closePipe() {
	s.mu.Lock()
	s.pipes--
	last := s.pipes == 0
	s.mu.Unlock()
	if last {
		s.end()
	}
}

// end tells all readers that no byte will come.
func (s *Stream) end() {
	s.mu.Lock()
	s.ended = true
	s.goOn()
	s.mu.Unlock()
	for _, t := range s.log.streams { // who waits on the other may have waited for this one
		t.mu.Lock()
		t.ring()
		t.mu.Unlock()
	}
}
