package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	reserveStep  = 256 << 10 // the reserve grows in such steps, so that few starts pay for it
	reservePiece = 128 << 10 // and is given up in such pieces
)

// SetReserve keeps n bytes of the disk free for batches that must land: about
// ReservePerRun for each run that is live, before its admission is submitted.
// It returns at once. When the disk has no room, admissions are refused from
// then on until it has. It is kept over Close: 0 lets go of it.
func (j *Journal) SetReserve(n int64) {
	if j.reserved.Swap(n) != n {
		select {
		case j.wake <- struct{}{}:
		default:
		}
	}
}

// ReservePerRun is what the end of a run takes of the disk at most when it is
// committed alone: the pages it changes, in the WAL and again in the database.
const ReservePerRun = 64 << 10

// A reserve is a file that keeps room on the disk. Only the writer has it.
type reserve struct {
	path  string
	have  int64
	want  int64     // when fit was called last
	tried time.Time // when it could not be had
	short error     // why have is less than wanted, nil when it is not
}

// openReserve takes what an earlier process left.
func openReserve(dir string) reserve {
	r := reserve{path: filepath.Join(dir, "journal.reserve")}
	if info, err := os.Lstat(r.path); err == nil && info.Mode().IsRegular() {
		r.have = info.Size()
	}
	return r
}

// fit makes the reserve as big as wanted; negative leaves it alone. It shrinks
// only when four steps are too much.
func (r *reserve) fit(want int64) {
	if want < 0 {
		return
	}
	want = (want + reserveStep - 1) / reserveStep * reserveStep
	again := want != r.want || time.Since(r.tried) >= remakeWait
	r.want = want
	switch {
	case want > r.have && again:
		r.short, r.tried = r.resize(want), time.Now()
	case want > r.have:
	case want == 0 && r.have > 0, r.have-want > 4*reserveStep:
		r.resize(want) // no harm if it stays
		r.short = nil
	default:
		r.short = nil
	}
}

// release gives a piece back to the disk, because of why. It reports false when
// nothing is left.
func (r *reserve) release(why error) bool {
	if r.have == 0 {
		return false
	}
	r.short, r.tried = why, time.Now()
	return r.resize(max(0, r.have-reservePiece)) == nil
}

func (r *reserve) resize(n int64) (err error) {
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE|openNoFollow, 0o600)
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if n > r.have {
		err = allocate(f, r.have, n-r.have)
		if err != nil {
			err = errors.Join(err, f.Truncate(r.have)) // a part of it may be there
		}
	} else {
		err = f.Truncate(n)
	}
	if err != nil {
		return fmt.Errorf("reserve %d bytes: %w", n, err)
	}
	r.have = n
	return nil
}

// fill allocates by writing, where nothing better is known.
func fill(f *os.File, off, n int64) error {
	zeros := make([]byte, min(n, 64<<10))
	for n > 0 {
		w, err := f.WriteAt(zeros[:min(n, int64(len(zeros)))], off)
		if err != nil {
			return err
		}
		off, n = off+int64(w), n-int64(w)
	}
	return nil
}
