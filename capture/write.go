package capture

import (
	"errors"
	"io"
	"os"
	"path/filepath"
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
		s.probe()
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

// renew puts a new file in the place of one that was deleted, moved or
// replaced. The newest bytes are taken along, so that a reader that keeps up
// misses nothing; all before them are lost, and it says so. Where no new file
// can be made, the old one, if open, is used as long as the log is open.
func (s *Stream) renew(seg *segment, why loss) error {
	w, total := &s.w, s.total.Load()
	if w.broken {
		total = s.tail.from // what is in memory is written next
	}
	f, info, err := s.replacement(seg.path)
	if err != nil {
		if w.f == nil {
			return err
		}
		s.mu.Lock()
		s.missing = why.String()
		s.mu.Unlock()
		s.spool.keepOpen(seg)
		w.checked = s.log.now() + 10*pathCheck
		return nil
	}
	from := total
	if w.f != nil {
		from = max(total-carryMax, seg.start, w.cut)
		if !carry(f, w.f, from-seg.start, total-from) {
			from = total
		}
	}
	s.lose(Range{seg.start, from}, why)
	s.spool.swap(seg, f, info)
	w.f, w.seg, w.checked = f, seg, s.log.now()
	if from == total {
		return f.Truncate(total - seg.start)
	}
	return nil
}

// replacement makes a file that takes the place of whatever is at path.
func (s *Stream) replacement(path string) (*os.File, os.FileInfo, error) {
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, nil, err
	}
	tmp := path + ".new"
	os.Remove(tmp)
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// carry copies n bytes at off from one file to the same place in another.
func carry(to, from *os.File, off, n int64) bool {
	k, err := io.Copy(io.NewOffsetWriter(to, off), io.NewSectionReader(from, off, n))
	return err == nil && k == n
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

// put adds p by writing, and never fails: what the spool does not take is
// counted and, for a moment, readable from memory. s.wmu is held.
func (s *Stream) put(p []byte) {
	for len(p) > 0 {
		n, err := s.begin(int64(len(p)))
		if err == nil {
			var k int
			k, err = s.w.f.WriteAt(p[:n], s.total.Load()-s.w.seg.start)
			if k > 0 {
				s.publish(int64(k))
				p = p[k:]
			}
			if err != nil {
				err = s.fail(err)
			}
		}
		if err != nil {
			s.count(p)
			return
		}
	}
}

// fail marks the spool as broken by err and returns errBroken.
func (s *Stream) fail(err error) error {
	w := &s.w
	w.broken, w.gap, w.why = true, s.total.Load(), lossOf(err)
	w.retry = s.log.now() + retryAfter
	s.rest()
	s.mu.Lock()
	s.tail = &tail{from: w.gap}
	w.before, s.missing = s.missing, w.why.String()
	s.mu.Unlock()
	return errBroken
}

// count takes bytes that the spool cannot have: they are kept in memory until
// newer ones take their place. It waits for matchers that would miss them.
func (s *Stream) count(p []byte) {
	for len(p) > 0 {
		n := min(len(p), tailSize/4)
		s.awaitScans(n)
		s.mu.Lock()
		s.tail.add(p[:n])
		s.mu.Unlock()
		s.publish(int64(n))
		s.mu.Lock()
		s.addHole(Range{s.w.gap, s.tail.from})
		s.mu.Unlock()
		p = p[n:]
	}
}

// awaitScans waits until n more bytes do not push any out of the tail that a
// matcher has still to see. Matchers never wait while there is something to see.
func (s *Stream) awaitScans(n int) {
	for {
		s.mu.Lock()
		oldest := s.tail.from + int64(max(len(s.tail.buf)+n-tailSize, 0))
		behind := false
		for sc := range s.scans {
			behind = behind || sc.pos < oldest
		}
		if !behind {
			s.mu.Unlock()
			return
		}
		room := s.moved()
		s.ring()
		s.mu.Unlock()
		<-room
	}
}

// moved returns a channel that is closed when a reader that holds the pump up
// has gone on. s.mu is held.
func (s *Stream) moved() <-chan struct{} {
	if s.room == nil {
		s.room = make(chan struct{})
	}
	return s.room
}

// goOn wakes a pump that waits for readers. s.mu is held.
func (s *Stream) goOn() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// mend tries a broken spool again with the bytes in memory. s.wmu is held.
func (s *Stream) mend() error {
	w := &s.w
	w.retry = s.log.now() + retryAfter
	err := s.ready()
	if err == nil { // tail is only changed by a holder of wmu
		_, err = w.f.WriteAt(s.tail.buf, s.tail.from-w.seg.start)
	}
	if err != nil {
		s.rest()
		return errBroken
	}
	gap := Range{w.gap, s.tail.from}
	if gap.Len() > 0 {
		s.log.index.gap(s.src, gap, w.why)
	}
	s.mu.Lock()
	s.tail = nil
	if gap.Len() == 0 {
		s.missing = w.before
	}
	s.mu.Unlock()
	w.broken = false
	return nil
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
		s.log.index.gap(s.src, Range{s.w.gap, s.total.Load()}, s.w.why)
	}
	s.rest()
}
