package capture

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// resume takes up what an earlier process left in the folder: the spool tells
// how long a stream is, the index what of it is gone. Where the index is torn
// or missing, the holes in the spool are believed: some file systems make holes
// of zeros that a command wrote, so only then.
func (l *Log) resume() error {
	recs, whole, err := readIndex(l.index.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, s := range l.streams {
		if err := s.resume(recs, whole); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stream) resume(recs []Record, whole bool) error {
	total, err := s.spool.find()
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	stored := total
	seen := int64(0) // the end of what the index knows
	for _, r := range recs {
		if r.Source != s.src {
			continue
		}
		seen = max(seen, r.End())
		if r.Omitted {
			s.holes = s.holes.add(Range{r.Off, r.End()})
			if r.why != lossLimit {
				s.missing = r.Why
			}
		}
	}
	s.last.Store(int64(s.lastWrite().Sub(s.log.epoch)))
	total = max(total, seen)
	s.inUse = !missing || total > 0
	if stored < total {
		if h, in := s.holes.at(stored); !in || h.To < total {
			s.missing = lossTruncated.String()
			if missing {
				s.missing = lossDeleted.String()
			}
		}
		s.holes = s.holes.add(Range{stored, total})
	}
	if !missing && !whole {
		s.believeHoles()
	}
	s.total.Store(total)
	s.w.cut = s.log.cfg.Head
	if h, in := s.holes.at(s.log.cfg.Head); in {
		s.w.cut = h.To
	}
	s.log.kept.Add(total - s.holes.sum())
	return nil
}

// believeHoles adds the holes in the files to those on record.
func (s *Stream) believeHoles() {
	for _, seg := range s.spool.segs {
		f, err := os.Open(seg.path)
		if err != nil {
			continue
		}
		if fi, err := f.Stat(); err == nil {
			for _, h := range holesOf(f, fi.Size()) {
				h.From, h.To = h.From+seg.start, h.To+seg.start
				if known, in := s.holes.at(h.From); !in || known.To < h.To {
					s.missing = lossUnknown.String()
				}
				s.holes = s.holes.add(h)
			}
		}
		f.Close()
	}
}

// lastWrite is when a stream that was found got its last byte: 1970 if it never
// got one.
func (s *Stream) lastWrite() time.Time {
	st, err := os.Stat(s.log.Path(s.src))
	if err != nil || st.Size() == 0 {
		return time.Unix(0, 0)
	}
	return st.ModTime()
}
