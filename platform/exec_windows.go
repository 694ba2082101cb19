package platform

import (
	"errors"
	"syscall"
)

// CanExecute is always true: Windows goes by the file's name.
func CanExecute(string) bool { return true }

// ErrnoName is the text of the error number in an error's chain; "" if there
// is none.
func ErrnoName(err error) string {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return ""
	}
	return errno.Error()
}
