package platform

import (
	"os"

	"golang.org/x/sys/unix"
)

// Pipe is os.Pipe whose ends block and are not in Go's poller: for ends that go
// to a child and to package capture, which has a poller of its own.
func Pipe() (r, w *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	return os.NewFile(uintptr(p[0]), "|0"), os.NewFile(uintptr(p[1]), "|1"), nil
}
