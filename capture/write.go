package capture

import (
	"errors"
	"os"
	"time"
)

const (
	pathCheck  = int64(100 * time.Millisecond) // how often a busy spool's path is looked at
	retryAfter = int64(250 * time.Millisecond) // how long a spool that failed is left alone
	chunkMax   = 1 << 20                       // the most that is moved at one time
	carryMax   = 1 << 20                       // bytes taken along when a spool has to be made anew
	stepMax    = 4 << 20                       // the most that is freed beyond need, to free seldom
)

// errBroken says that the spool takes nothing now.
var errBroken = errors.New("spool takes no bytes")

// A writer is the end of a stream that bytes are added at. It is guarded by
// the stream's wmu.
type writer struct {
	f       *os.File // nil while idle
	seg     *segment
	split   int64       // segment size where holes cannot be punched, else 0
	probed  bool        // split is known
	broken  bool        // the spool takes nothing: count
	retry   int64       // when to try a broken spool again, ns since epoch
	checked int64       // when the path was looked at
	gap     int64       // where the bytes begin that are not in the spool, while broken
	why     loss        // while broken
	before  string      // Stream.missing before it broke
	idler   *time.Timer // closes the spool once it is quiet; nil = not running
	closed  bool        // for good
	cut     int64       // the end of the freed middle
}

// begin readies the spool for up to n bytes at the end and returns how many it
// takes now. s.wmu is held.
func (s *Stream) begin(n int64) (int64, error) {
	w := &s.w
	if w.broken {
		if s.log.now() < w.retry {
			return 0, errBroken
		}
		if err := s.mend(); err != nil {
			return 0, err
		}
	}
	if err := s.ready(); err != nil {
		return 0, s.fail(err)
	}
	n = s.makeRoom(min(n, chunkMax))
	if left := s.log.cfg.Head - s.total.Load(); left > 0 && !w.probed {
		n = min(n, left) // nothing is freed or split before
	} else {
		s.probe()
	}
	if w.split > 0 {
		if err := s.nextSegment(); err != nil {
			return 0, s.fail(err)
		}
		n = min(n, s.segmentEnd()-s.total.Load())
	}
	return n, nil
}

// segmentEnd returns where the segment in use has to end.
func (s *Stream) segmentEnd() int64 {
	if s.w.seg.start == 0 {
		return max(s.log.cfg.Head, 1)
	}
	return s.w.seg.start + s.w.split
}

// nextSegment goes on in a new segment when the one in use is full.
func (s *Stream) nextSegment() error {
	w, total := &s.w, s.total.Load()
	if total < s.segmentEnd() {
		return nil
	}
	seg, err := s.spool.grow(total)
	if err != nil {
		return err
	}
	s.rest()
	w.seg = seg
	w.f, err = s.spool.acquire(seg)
	return err
}

// ready opens the spool and sees to it that it is the file it was.
func (s *Stream) ready() error {
	w := &s.w
	if w.f == nil {
		seg := s.spool.last()
		f, err := s.spool.acquire(seg)
		if lossOf(err) == lossDeleted && err != nil {
			return s.renew(seg, lossDeleted)
		}
		if err != nil {
			return err
		}
		w.f, w.seg, w.checked = f, seg, s.log.now()
	}
	size, named, err := fileState(w.f)
	if err != nil {
		return err
	}
	have := s.total.Load()
	if w.broken {
		have = w.gap
	}
	if end := w.seg.start + size; end < have && !s.knownHole(Range{end, have}) {
		s.lose(Range{end, have}, lossTruncated)
	}
	if w.seg.path == "" {
		return nil
	}
	if !named && !w.seg.gone {
		return s.renew(w.seg, lossDeleted)
	}
	if now := s.log.now(); now-w.checked > pathCheck {
		w.checked = now
		if fi, err := os.Lstat(w.seg.path); err != nil || !os.SameFile(fi, w.seg.info) {
			return s.renew(w.seg, lossReplaced)
		}
	}
	return nil
}

// knownHole reports whether all of r is omitted already.
func (s *Stream) knownHole(r Range) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	hole, in := s.holes.at(r.From)
	return in && hole.To >= r.To
}

// probe finds out, by doing it, whether the file system can punch holes.
func (s *Stream) probe() {
	w := &s.w
	if w.probed || s.log.cfg.MaxOutput < 0 {
		return
	}
	w.probed = true
	if punch(w.f, 1<<40, blockSize) != nil {
		w.split = max((s.log.cfg.MaxOutput-s.log.cfg.Head)/8, blockSize)
	}
}

// makeRoom frees the middle so that n more bytes stay within the limit, and
// returns how many of them may come at once.
func (s *Stream) makeRoom(n int64) int64 {
	w, total, head := &s.w, s.total.Load(), s.log.cfg.Head
	kept := total - max(w.cut-head, 0)
	limit := s.log.limit(kept)
	if limit < 0 {
		return n
	}
	body := max(limit-head, 1)
	n = min(n, max(body/4, blockSize)) // less at a time would hold the command up
	if kept+n > limit {
		step := min(body/8, stepMax)
		s.cutTo(total+n-body+step, step)
	}
	return n
}

// cutTo frees the bytes between the head and to, which is step more than has to
// be. A reader is told before they are gone, and the index too.
func (s *Stream) cutTo(to, step int64) {
	w, head, total := &s.w, s.log.cfg.Head, s.total.Load()
	to = min(to, total)
	if w.split > 0 {
		to = s.spool.boundary(to)
	} else if step >= 2*blockSize {
		to -= to % blockSize
	}
	from := max(w.cut, head)
	if to <= from {
		return
	}
	s.lose(Range{head, to}, lossLimit)
	w.cut = to
	if w.split > 0 {
		s.spool.drop(to)
		return
	}
	if w.f == nil {
		return
	}
	from = max(from-from%blockSize, head) // a block freed in two parts is freed with the second
	_ = punch(w.f, from, to-from)         // it worked when probed; if not now, the bytes are only hidden
}

// rest closes the spool until it is needed again. s.wmu is held.
func (s *Stream) rest() {
	if s.w.f != nil {
		s.spool.release(s.w.seg, s.w.f)
		s.w.f = nil
	}
}

// settleSpool makes the spool's state final: what is only in memory is tried
// once more, and the gap is put on record. s.wmu is held.
func (s *Stream) settleSpool() {
	s.w.closed = true
	if s.w.idler != nil {
		s.w.idler.Stop()
		s.w.idler = nil
	}
	if s.w.broken && s.mend() != nil {
		gap := Range{s.w.gap, s.total.Load()}
		s.log.index.gap(s.src, gap, s.w.why)
		s.mu.Lock()
		s.unkept = gap
		s.mu.Unlock()
	}
	s.rest()
}
