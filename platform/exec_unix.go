//go:build unix

package platform

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// CanExecute reports whether this user may execute a file.
func CanExecute(file string) bool { return unix.Access(file, unix.X_OK) == nil }

// ErrnoName is the symbol of the errno in an error's chain, such as ENOENT;
// "" if there is none.
func ErrnoName(err error) string {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return ""
	}
	return unix.ErrnoName(errno)
}
