package capture

import (
	"io"
	"os"
	"path/filepath"
)

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
	s.probe()
	if from == total {
		return f.Truncate(total - seg.start)
	}
	return nil
}

// replacement makes a file that takes the place of whatever is at path.
func (s *Stream) replacement(path string) (*os.File, os.FileInfo, error) {
	if _, err := makeDir(filepath.Dir(path)); err != nil {
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
