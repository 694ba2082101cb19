package capture

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// A spool is the file or files a stream's bytes are in. One file holds them
// all, with a hole where bytes were freed; where the file system knows no
// holes, the file ends at the head and segments named after their first offset
// follow, which are removed whole. Files are open only while they are used.
type spool struct {
	path string // of the first file; "" = files without a name

	mu      sync.Mutex // guards what follows
	segs    []*segment // in order of start
	holders int        // readers that keep nameless files open after close
	closed  bool
}

// A segment is one file of a spool.
type segment struct {
	start int64  // the offset of its first byte
	path  string // "" = no name
	f     *os.File
	refs  int
	info  os.FileInfo // of the file opened first; another one at path is not ours
	gone  bool        // it lost its name and no new file can be made
}

// lasting reports whether the file can be closed and opened again.
func (g *segment) lasting() bool { return g.path != "" && !g.gone }

func newSpool(dir string, src Source) *spool {
	s := &spool{}
	if dir != "" {
		s.path = filepath.Join(dir, src.String())
	}
	s.segs = []*segment{{path: s.path}}
	return s
}

// create makes the first file exist, so that its path is valid.
func (s *spool) create(resume bool) error {
	if s.path == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seg := s.segs[0]
	if seg.info != nil {
		return nil
	}
	flag := os.O_RDWR | os.O_CREATE | noFollow
	if !resume {
		flag |= os.O_EXCL
	}
	f, err := openFile(s.path, flag)
	if err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%w: %w", ErrExists, err)
		}
		return fmt.Errorf("create spool: %w", err)
	}
	defer f.Close()
	seg.info, err = f.Stat()
	return err
}

// find loads the segments of an earlier process and returns the length of the spool.
func (s *spool) find() (int64, error) {
	names, err := filepath.Glob(globEscape(s.path) + ".*")
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		start, err := strconv.ParseInt(strings.TrimPrefix(name, s.path+"."), 10, 64)
		if err == nil && start > 0 {
			s.segs = append(s.segs, &segment{start: start, path: name})
		}
	}
	sort.Slice(s.segs, func(i, j int) bool { return s.segs[i].start < s.segs[j].start })
	last := s.segs[len(s.segs)-1]
	switch fi, err := os.Lstat(last.path); {
	case err == nil && fi.Mode().IsRegular():
		return last.start + fi.Size(), nil
	case err == nil:
		return 0, fmt.Errorf("open spool: %s is not a file", last.path)
	case errors.Is(err, fs.ErrNotExist):
		return last.start, err
	default:
		return 0, fmt.Errorf("open spool: %w", err)
	}
}

// globEscape quotes what filepath.Glob would take for a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// acquire opens the segment unless it is open. Release it.
func (s *spool) acquire(seg *segment) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seg.f == nil {
		if seg.path == "" && s.closed {
			return nil, fmt.Errorf("read spool: %w", ErrClosed)
		}
		f, err := seg.open()
		if err != nil {
			return nil, err
		}
		seg.f = f
	}
	seg.refs++
	return seg.f, nil
}

// open opens the file, which has to be the one it was.
func (g *segment) open() (*os.File, error) {
	if g.path == "" {
		f, err := unnamed()
		if err != nil {
			return nil, fmt.Errorf("create spool: %w", err)
		}
		return f, nil
	}
	f, err := openFile(g.path, os.O_RDWR|noFollow)
	if errors.Is(err, fs.ErrPermission) {
		f, err = openFile(g.path, os.O_RDONLY|noFollow)
	}
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	fi, err := f.Stat()
	if err == nil && g.info == nil {
		g.info = fi
	}
	if err == nil && !os.SameFile(fi, g.info) {
		err = fmt.Errorf("open spool: %s is another file: %w", g.path, fs.ErrNotExist)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// release gives back what acquire returned; the last one closes the file,
// unless it could not be opened again.
func (s *spool) release(seg *segment, f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seg.f != f {
		return // swapped meanwhile, and closed then
	}
	if seg.refs--; seg.refs == 0 && (seg.lasting() || s.closed && s.holders == 0) {
		seg.f = nil
		f.Close()
	}
}

// readAt reads at the offset off of the stream, within one segment.
func (s *spool) readAt(p []byte, off int64) (int, error) {
	seg, end := s.segment(off)
	if end > 0 && end-off < int64(len(p)) {
		p = p[:end-off]
	}
	for {
		f, err := s.acquire(seg)
		if err != nil {
			return 0, err
		}
		n, err := f.ReadAt(p, off-seg.start)
		s.release(seg, f)
		if n > 0 {
			return n, nil
		}
		if !errors.Is(err, os.ErrClosed) { // else it was swapped for another file
			return 0, err
		}
	}
}

// segment returns the segment that holds off and where it ends, 0 = open.
func (s *spool) segment(off int64) (seg *segment, end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.segs) - 1; i >= 0; i-- {
		if s.segs[i].start <= off {
			return s.segs[i], end
		}
		end = s.segs[i].start
	}
	return s.segs[0], end
}

// last returns the segment that is written to.
func (s *spool) last() *segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.segs[len(s.segs)-1]
}

// grow adds a segment that begins at start.
func (s *spool) grow(start int64) (*segment, error) {
	seg := &segment{start: start}
	if s.path != "" {
		seg.path = s.path + "." + strconv.FormatInt(start, 10)
		f, err := os.OpenFile(seg.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|noFollow, 0o600)
		if err != nil {
			return nil, fmt.Errorf("create spool segment: %w", err)
		}
		defer f.Close()
		if seg.info, err = f.Stat(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segs = append(s.segs, seg)
	return seg, nil
}

// drop removes the segments that end at or before off, but not the first.
func (s *spool) drop(off int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := s.segs[:1:1]
	for i := 1; i < len(s.segs); i++ {
		seg := s.segs[i]
		if i+1 == len(s.segs) || s.segs[i+1].start > off {
			keep = append(keep, seg)
			continue
		}
		if seg.path != "" {
			os.Remove(seg.path) // a reader that has it open reads on and is told of the hole
		}
		if seg.f != nil && seg.refs == 0 {
			seg.f.Close()
			seg.f = nil
		}
	}
	s.segs = keep
}

// boundary returns the last offset at or before off where a segment begins.
func (s *spool) boundary(off int64) int64 {
	seg, _ := s.segment(off)
	return seg.start
}

// swap puts f in the place of the segment's file, at the same path.
func (s *spool) swap(seg *segment, f *os.File, info os.FileInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seg.f != nil {
		seg.f.Close()
	}
	seg.f, seg.refs, seg.info, seg.gone = f, 1, info, false
}

// keepOpen has the segment's file stay open, as it has lost its name.
func (s *spool) keepOpen(seg *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.gone = true
}

// hold keeps nameless files readable until the returned function is called.
func (s *spool) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holders--
		s.closeIdle()
	})
}

// close closes what was held open for lack of a name.
func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.closeIdle()
}

// closeIdle closes nameless files nobody uses any more. s.mu is held.
func (s *spool) closeIdle() {
	if !s.closed || s.holders > 0 {
		return
	}
	for _, seg := range s.segs {
		if !seg.lasting() && seg.f != nil && seg.refs == 0 {
			seg.f.Close()
			seg.f = nil
		}
	}
}
