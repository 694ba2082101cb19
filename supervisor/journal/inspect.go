package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// inspect looks at the files before SQLite does, because SQLite would take an
// empty file for a new one, drop the end of a torn WAL without a word and write
// to a journal it cannot read. It makes the journal if there is none.
func (j *Journal) inspect() error {
	info, err := os.Lstat(j.path)
	if errors.Is(err, os.ErrNotExist) {
		if wal, err := os.Stat(j.path + "-wal"); err == nil && wal.Size() > 0 {
			return fmt.Errorf("%s: %w: the file is missing, but %s is there", j.path, ErrDamaged, base(j.path+"-wal"))
		}
		return create(j.path)
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w: it is not a regular file", j.path, ErrDamaged)
	}
	if err := checkOwner(j.path, info); err != nil {
		return err
	}
	head, err := readHead(j.path)
	if err != nil {
		return err
	}
	wal, err := readWAL(j.path+"-wal", head.pages(info.Size()))
	if err != nil {
		return err
	}
	if wal.page1 != nil {
		head = wal.page1
	}
	if err := head.check(j.path); err != nil {
		return err
	}
	if err := whole(j.path, head, wal, info.Size()); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 { // it has environments in it
		if err := os.Chmod(j.path, 0o600); err != nil {
			return err
		}
	}
	j.inWAL = int(wal.committed)
	return j.torn(wal)
}

// A header is the first 100 bytes of the database (sqlite.org/fileformat2.html).
type header []byte

func readHead(path string) (header, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := make(header, 100)
	if n, err := io.ReadFull(f, h); err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("%s: %w: it is truncated to %d bytes", path, ErrDamaged, n)
	} else if err != nil {
		return nil, err
	}
	if string(h[:16]) != "SQLite format 3\x00" || h.pageSize() < 512 {
		return nil, fmt.Errorf("%s: %w: it does not begin as a database does", path, ErrDamaged)
	}
	return h, nil
}

func (h header) u32(off int) uint32 { return binary.BigEndian.Uint32(h[off:]) }

func (h header) pageSize() int64 {
	n := int64(binary.BigEndian.Uint16(h[16:]))
	if n == 1 {
		return 65536
	}
	return n
}

// pages is how many whole pages are in a file of that size.
func (h header) pages(size int64) uint32 { return uint32(size / h.pageSize()) }

func (h header) check(path string) error {
	if v := h.u32(60); v > schemaVersion && h.u32(68) == applicationID {
		return newerSchema(int64(v))
	}
	if id := h.u32(68); id != applicationID {
		return fmt.Errorf("%s: %w: it is not a journal of procsup (application id %#x)", path, ErrDamaged, id)
	}
	return nil
}

// whole refuses a file that is shorter than it says, unless the WAL has what is
// missing: a checkpoint was cut short then.
func whole(path string, h header, w wal, size int64) error {
	want, have := h.u32(28), h.pages(size)
	if h.u32(24) != h.u32(92) { // the number is not kept up; not by SQLite since 3.7
		want = 0
	}
	if w.committed > 0 {
		want = w.pages
	}
	locks := uint32(1<<30/h.pageSize()) + 1 // SQLite never writes the page of its locks
	for p := have + 1; p <= want; p++ {
		if !w.beyond[p] && p != locks {
			return fmt.Errorf("%s: %w: it is truncated, %d of %d pages are there", path, ErrDamaged, have, want)
		}
	}
	return nil
}

// A wal is what can be read of the write-ahead log.
type wal struct {
	size      int64
	ok        bool // it has a valid header
	salt      [8]byte
	committed uint32          // frames up to the last commit that can be read
	pages     uint32          // of the database after it
	page1     header          // the newest
	beyond    map[uint32]bool // pages behind the end of the database file
	later     bool            // a commit of the same generation lies behind what can be read
}

// readWAL follows the checksums through the log, as SQLite's recovery does
// (sqlite.org/fileformat2.html#walformat). No log is an empty one.
func readWAL(path string, filePages uint32) (wal, error) {
	w := wal{beyond: map[uint32]bool{}}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return w, nil
	}
	if err != nil {
		return w, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return w, err
	}
	w.size = info.Size()
	r := bufio.NewReaderSize(f, 256<<10)
	head := make([]byte, 32)
	if _, err := io.ReadFull(r, head); err != nil {
		return w, ignoreEnd(err)
	}
	magic, size := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[8:])
	sum := checksum{order: binary.LittleEndian}
	if magic&1 == 1 {
		sum.order = binary.BigEndian
	}
	sum.add(head[:24])
	if magic&^1 != 0x377f0682 || size < 512 || size > 65536 || size&(size-1) != 0 || !sum.is(head[24:]) {
		return w, nil
	}
	w.ok, w.salt = true, [8]byte(head[16:24])
	return w, w.frames(r, sum, int(size), filePages)
}

// frames reads what follows the header.
func (w *wal) frames(r io.Reader, sum checksum, pageSize int, filePages uint32) error {
	frame := make([]byte, 24+pageSize)
	var since []uint32 // pages of the transaction that is being read
	var page1 header
	for n, valid := uint32(1), true; ; n++ {
		if _, err := io.ReadFull(r, frame); err != nil {
			return ignoreEnd(err)
		}
		page, commit := binary.BigEndian.Uint32(frame), binary.BigEndian.Uint32(frame[4:])
		if !bytes.Equal(frame[8:16], w.salt[:]) {
			valid = false
			continue
		}
		if valid {
			sum.add(frame[:8])
			sum.add(frame[24:])
			valid = page != 0 && sum.is(frame[16:])
		}
		if !valid {
			w.later = w.later || commit != 0
			continue
		}
		if page == 1 {
			page1 = append(page1[:0], frame[24:124]...)
		}
		if page > filePages {
			since = append(since, page)
		}
		if commit != 0 {
			w.committed, w.pages = n, commit
			if page1 != nil {
				w.page1 = append(w.page1[:0], page1...)
			}
			for _, p := range since {
				w.beyond[p] = true
			}
			since = since[:0]
		}
	}
}

func ignoreEnd(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// A checksum is the one of WAL frames, over pairs of words.
type checksum struct {
	order  binary.ByteOrder
	s0, s1 uint32
}

func (c *checksum) add(b []byte) {
	s0, s1 := c.s0, c.s1
	if c.order == binary.LittleEndian { // the usual one, without the calls
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.LittleEndian.Uint32(b) + s1
			s1 += binary.LittleEndian.Uint32(b[4:]) + s0
		}
	}
	for ; len(b) >= 8; b = b[8:] {
		s0 += c.order.Uint32(b) + s1
		s1 += c.order.Uint32(b[4:]) + s0
	}
	c.s0, c.s1 = s0, s1
}

func (c *checksum) is(b []byte) bool {
	return binary.BigEndian.Uint32(b) == c.s0 && binary.BigEndian.Uint32(b[4:]) == c.s1
}
