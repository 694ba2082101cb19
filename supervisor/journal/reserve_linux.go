package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate takes room on the disk. fallocate(2) is not everywhere (NFS).
func allocate(f *os.File, off, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, off, n)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return fill(f, off, n)
		default:
			return os.NewSyscallError("fallocate", err)
		}
	}
}
