package capture

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	indexGrain = int64(time.Millisecond)       // records of one stream closer than this are one
	indexLate  = int64(100 * time.Millisecond) // the longest a record stays in memory while a stream is busy
	indexBatch = 64                            // and the most of them
	indexMax   = 8 << 20                       // past this the index is thinned to half
	indexSpare = 4096                          // room kept for telling of gaps when the disk is full
)

// An index is the file that says when which bytes came. Data records are
// written late and may be lost by a SIGKILL, which costs their times, not
// their bytes; a gap is written before the bytes are freed. Errors of the
// index disturb nothing: without it times are unknown.
type index struct {
	path  string // "" = times are kept nowhere
	epoch time.Time
	mono  time.Duration   // CLOCK_MONOTONIC at epoch
	gaps  func() []Record // all gaps there are, for an index that was deleted

	mu      sync.Mutex // guards what follows
	pending []Record
	flushed int64 // when, ns since epoch
	f       *os.File
	size    int64 // of the file; 0 = unknown
	spare   int64 // up to where space is set aside
	closed  bool
}

// openIndex creates the index file, which tells whether the folder is usable. In
// a fresh folder, which is, that is left to the first record: most commands
// write nothing.
func openIndex(cfg Config, epoch time.Time, fresh bool) (*index, error) {
	x := &index{epoch: epoch, mono: monotonic() - time.Since(epoch)}
	if cfg.Dir == "" {
		return x, nil
	}
	x.path = filepath.Join(cfg.Dir, "index")
	if fresh {
		return x, nil
	}
	flag := os.O_RDWR | os.O_CREATE | noFollow
	if !cfg.Resume {
		flag |= os.O_EXCL
		for _, src := range []Source{Stdout, Stderr} {
			if p := filepath.Join(cfg.Dir, src.String()); exists(p) {
				return nil, fmt.Errorf("open log: %s: %w", p, ErrExists)
			}
		}
	}
	f, err := openFile(x.path, flag)
	if err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%w: %w", ErrExists, err)
		}
		return nil, fmt.Errorf("open log: %w", err)
	}
	return x, f.Close()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// add notes that n bytes came at off; now is ns since epoch. due: it is time to
// write what is pending.
func (x *index) add(src Source, off, n, now int64) (due bool) {
	if x.path == "" {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := len(x.pending) - 1; k >= 0 {
		if p := &x.pending[k]; p.Source == src && !p.Omitted && p.End() == off && now-int64(p.Mono-x.mono) < indexGrain {
			p.Len += n
			return false
		}
	}
	x.pending = append(x.pending, x.record(src, off, n, now))
	return len(x.pending) >= indexBatch || now-x.flushed > indexLate
}

// write writes what is pending.
func (x *index) write(now int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flush(now)
}

func (x *index) record(src Source, off, n, now int64) Record {
	t := x.epoch.Add(time.Duration(now)).Round(0)
	return Record{Source: src, Off: off, Len: n, Mono: x.mono + time.Duration(now), Wall: t}
}

// gap writes that bytes are not kept, before they are freed.
func (x *index) gap(src Source, r Range, why loss) {
	if x.path == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := int64(time.Since(x.epoch))
	rec := x.record(src, r.From, r.Len(), now)
	rec.Omitted, rec.why, rec.Why = true, why, why.String()
	x.pending = append(x.pending, rec)
	x.flush(now)
}

// idle writes what is pending and closes the file.
func (x *index) idle() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flush(int64(time.Since(x.epoch)))
	if x.f != nil {
		x.f.Close()
		x.f, x.size = nil, 0
	}
}

func (x *index) close() error {
	if x.path == "" {
		return nil
	}
	x.idle()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return nil
}

// flush writes the pending records; what cannot be written is tried again with
// the next, gaps before data when it gets too much. x.mu is held.
func (x *index) flush(now int64) {
	x.flushed = now
	if len(x.pending) == 0 || x.path == "" {
		return
	}
	if err := x.store(); err != nil {
		if len(x.pending) >= 4*indexBatch {
			x.pending = slices.DeleteFunc(x.pending, func(r Record) bool { return !r.Omitted })
		}
		if over := len(x.pending) - 4*indexBatch; over > 0 {
			x.pending = slices.Delete(x.pending, 0, over)
		}
		return
	}
	x.pending = x.pending[:0]
	if x.size > indexMax {
		x.thin()
	}
}

// store appends the pending records to the file. x.mu is held.
func (x *index) store() error {
	if err := x.open(); err != nil {
		return err
	}
	var b []byte
	if x.size == 0 {
		b = append(b, indexMagic...)
		for _, r := range x.gaps() {
			b = r.append(b)
		}
	}
	for _, r := range x.pending {
		b = r.append(b)
	}
	if x.size+int64(len(b)) > x.spare { // set room aside while there is some
		if spare := x.size + int64(len(b)) + indexSpare; setAside(x.f, x.size, spare-x.size) == nil {
			x.spare = spare
		}
	}
	n, err := x.f.WriteAt(b, x.size)
	if err != nil {
		return err // a torn record is overwritten by the next try
	}
	x.size += int64(n)
	return nil
}

// open opens the file and finds the end of the last whole record.
func (x *index) open() error {
	if x.f != nil {
		if _, named, err := fileState(x.f); named && err == nil {
			return nil
		}
		x.f.Close()
		x.f, x.size = nil, 0
	}
	f, err := openFile(x.path, os.O_RDWR|os.O_CREATE|noFollow)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	x.f, x.size = f, fi.Size()
	if x.size < int64(headerSize) {
		x.size = 0
	} else {
		x.size -= (x.size - int64(headerSize)) % recordSize
	}
	x.spare = x.size
	return nil
}

// thin rewrites the index at half its size: neighbours become one, records of
// bytes that are gone go. The times of what is left get coarser. x.mu is held.
func (x *index) thin() {
	recs, _, err := readIndex(x.path)
	if err != nil {
		return
	}
	recs = thinned(recs)
	b := []byte(indexMagic)
	for _, r := range recs {
		b = r.append(b)
	}
	tmp := x.path + ".new"
	if os.WriteFile(tmp, b, 0o600) != nil || os.Rename(tmp, x.path) != nil {
		os.Remove(tmp)
		return
	}
	x.f.Close()
	x.f, x.size = nil, 0
}

// thinned drops records of omitted bytes, joins gaps, and joins neighbours in pairs.
func thinned(recs []Record) []Record {
	var holes [2]ranges
	last := [2]Record{}
	for _, r := range recs {
		if r.Omitted {
			holes[r.Source] = holes[r.Source].add(Range{r.Off, r.End()})
			last[r.Source] = r
		}
	}
	var out []Record
	for src, hs := range holes {
		for _, h := range hs {
			r := last[src]
			r.Off, r.Len = h.From, h.Len()
			out = append(out, r)
		}
	}
	paired := [2]int{-1, -1}
	for _, r := range recs {
		if h, in := holes[r.Source].at(r.Off); r.Omitted || in && r.End() <= h.To {
			continue
		}
		if i := paired[r.Source]; i >= 0 && out[i].End() == r.Off {
			out[i].Len += r.Len
			paired[r.Source] = -1
			continue
		}
		out = append(out, r)
		paired[r.Source] = len(out) - 1
	}
	return out
}

// readIndex returns the whole records of an index file, and whether nothing of
// it is torn or missing.
func readIndex(path string) (recs []Record, whole bool, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, false, fmt.Errorf("read index: %w", err)
	}
	recs, whole = parseIndex(b)
	return recs, whole, nil
}

// Records returns the index of the log as far as it goes: the order in which
// the streams' bytes came and when, to a millisecond or coarser.
func (l *Log) Records() ([]Record, error) {
	if l.index.path == "" {
		return nil, nil
	}
	l.index.mu.Lock()
	if !l.reading {
		l.index.flush(l.now())
	}
	l.index.mu.Unlock()
	recs, _, err := readIndex(l.index.path)
	if errors.Is(err, fs.ErrNotExist) { // nothing was written, or who wrote died before its first record: the bytes are there
		return nil, nil
	}
	return recs, err
}
