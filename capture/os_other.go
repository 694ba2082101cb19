//go:build !linux

package capture

import (
	"errors"
	"os"
	"syscall"
	"time"
)

const noFollow = 0

func openFile(path string, flag int) (*os.File, error) { return os.OpenFile(path, flag, 0o600) }

// start stands in for the monotonic clock's zero.
var start = time.Now()

func monotonic() time.Duration { return time.Since(start) }

func unnamed() (*os.File, error) { return unlinked(os.TempDir()) }

func lossOfErrno(err error) loss {
	if errors.Is(err, syscall.ENOSPC) {
		return lossFull
	}
	return lossWrite
}

func fileState(f *os.File) (size int64, named bool, err error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, false, err
	}
	return fi.Size(), true, nil
}

func punch(*os.File, int64, int64) error { return errors.ErrUnsupported }

func setAside(*os.File, int64, int64) error { return errors.ErrUnsupported }

func holesOf(*os.File, int64) ranges { return nil }

func onDisk(info os.FileInfo) int64 { return info.Size() }
