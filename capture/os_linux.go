package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const noFollow = unix.O_NOFOLLOW

// openFile is os.OpenFile, mode 0600, without the six system calls by which that
// finds out that Go's poller cannot wait for a file: a short command has several.
func openFile(path string, flag int) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flag|unix.O_CLOEXEC, 0o600)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), path), nil
		case unix.EINTR:
		default:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

func monotonic() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// unnamed makes a file without a name in os.TempDir.
func unnamed() (*os.File, error) {
	dir := os.TempDir()
	f, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err == nil {
		return f, nil
	}
	return unlinked(dir)
}

func lossOfErrno(err error) loss {
	switch {
	case errors.Is(err, unix.ENOSPC):
		return lossFull
	case errors.Is(err, unix.EDQUOT):
		return lossDiskQuota
	case errors.Is(err, unix.EFBIG):
		return lossFileSize
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // something else is in its place
		return lossDeleted
	}
	return lossWrite
}

// fileState returns the length of f and whether it still has a name.
func fileState(f *os.File) (size int64, named bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, false, err
	}
	return st.Size, st.Nlink > 0, nil
}

// punch frees the bytes of f, whose length and offsets stay.
func punch(f *os.File, from, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, n)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("punch hole in %s: %w", filepath.Base(f.Name()), err)
		}
		return nil
	}
}

// setAside reserves space behind the end of f.
func setAside(f *os.File, from, n int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n)
}

// holesOf returns the holes of f, which no writer of ours leaves unless it
// freed or lost bytes. A file system that does not know holes has none.
func holesOf(f *os.File, size int64) (rs ranges) {
	fd := int(f.Fd())
	for off := int64(0); off < size; {
		data, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if err != nil || data > size {
			data = size
			if err != nil && !errors.Is(err, unix.ENXIO) {
				return rs
			}
		}
		rs = rs.add(Range{off, data})
		if data == size {
			break
		}
		if off, err = unix.Seek(fd, data, unix.SEEK_HOLE); err != nil {
			break
		}
	}
	return rs
}

// onDisk is the size of a file without its holes; st_blocks counts 512 bytes,
// stat(2), and may count more than the file has.
func onDisk(info os.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size()
	}
	return min(info.Size(), st.Blocks*512)
}
