package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// torn says when commits that were answered cannot be read from the WAL. A
// death of the process leaves at most a transaction that was never answered at
// its end; more is missing only after a power cut or when somebody cut or
// changed the file. SQLite goes on without them, so a copy is kept.
func (j *Journal) torn(w wal) error {
	idx, err := readIndex(j.path + "-shm")
	if err != nil {
		return err
	}
	var what string
	switch {
	case idx.ok && (!w.ok || idx.salt == w.salt):
		if idx.frames <= max(w.committed, idx.done) {
			return nil
		}
		what = fmt.Sprintf("%d frames of %d can be read", w.committed, idx.frames)
	case w.ok && w.later, !w.ok && w.size > 32:
		what = fmt.Sprintf("it can be read up to frame %d only", w.committed)
	default:
		return nil
	}
	path := j.path + "-wal"
	err = fmt.Errorf("%s: %w: it is torn, %s; commits behind that are lost", path, ErrDamaged, what)
	if cerr := keep(path, path+".damaged"); cerr != nil && !errors.Is(cerr, os.ErrNotExist) {
		err = fmt.Errorf("%w (and no copy could be kept: %w)", err, cerr)
	}
	j.warnings = append(j.warnings, err)
	return nil
}

func keep(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|openNoFollow, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// An index is what the last process knew of the WAL: its index outlives a kill,
// so it tells how many frames were committed (sqlite.org/walformat.html#the_wal_index_file_format).
type index struct {
	ok     bool
	salt   [8]byte
	frames uint32 // committed
	done   uint32 // of these, are in the database
}

func readIndex(path string) (index, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return index{}, nil
	}
	if err != nil {
		return index{}, err
	}
	defer f.Close()
	b := make([]byte, 136)
	if _, err := io.ReadFull(f, b); err != nil {
		return index{}, ignoreEnd(err)
	}
	u32 := func(off int) uint32 { return binary.NativeEndian.Uint32(b[off:]) }
	sum := checksum{order: binary.NativeEndian}
	sum.add(b[:40])
	if string(b[:48]) != string(b[48:96]) || u32(0) != 3007000 || b[12] != 1 || u32(40) != sum.s0 || u32(44) != sum.s1 {
		return index{}, nil // it was being written, or is of nobody
	}
	return index{true, [8]byte(b[32:40]), u32(16), u32(96)}, nil
}
