package platform

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// InheritedFDs lists the descriptors from 3 up that this process was given and
// the next program would inherit too: those that are not close-on-exec, as all
// that Go opens are.
func InheritedFDs() []int {
	var out []int
	for _, fd := range numericEntries("/proc/self/fd") {
		if fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			out = append(out, fd)
		}
	}
	return out
}

// CloseFDs closes descriptors by number.
func CloseFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// CloseInherited closes every descriptor from first up that this process was
// given. Go's own, such as its poller's, are close-on-exec and stay.
func CloseInherited(first int) {
	for _, fd := range InheritedFDs() {
		if fd >= first {
			_ = unix.Close(fd)
		}
	}
}

// LetGo makes a descriptor name what null names, so that this process no
// longer keeps open what it was.
func LetGo(fd, null int) { _ = unix.Dup3(null, fd, 0) }

// SetCloexec keeps a descriptor from the programs started from now on; false
// when it is not open.
func SetCloexec(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
	return err == nil
}

// MonotonicNow is CLOCK_MONOTONIC in nanoseconds, which two processes of one
// boot can compare.
func MonotonicNow() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// NeedFDs is an error that says so when n more descriptors cannot be opened.
func NeedFDs(n int) error {
	if spareFDs(n) {
		return nil
	}
	soft, _ := FDLimit()
	return fmt.Errorf("too few file descriptors (EMFILE): RLIMIT_NOFILE is %d and %d more are needed; try: ulimit -n 256", soft, n)
}

// spareFDs reports whether n more descriptors can be opened before
// RLIMIT_NOFILE. It looks for closed ones by poll(2), which opens none: the Go
// runtime dies when its poller, made at some timer, is refused one.
func spareFDs(n int) bool {
	const chunk = 64
	soft, _ := FDLimit()
	for first := uint64(0); n > 0 && first < soft; first += chunk {
		fds := make([]unix.PollFd, min(chunk, soft-first))
		for i := range fds {
			fds[i].Fd = int32(first) + int32(i)
		}
		for {
			_, err := unix.Poll(fds, 0)
			if err == nil {
				break
			}
			if err != unix.EINTR && err != unix.EAGAIN {
				return false
			}
		}
		for _, fd := range fds {
			if fd.Revents&unix.POLLNVAL != 0 {
				n--
			}
		}
	}
	return n <= 0
}

// OpenInput opens a file for a command to read from. It never waits: not for the
// writer of a FIFO (fifo(7)), which whoever names one has to have open, else the
// command finds its end.
func OpenInput(name string) (*os.File, error) {
	fd, err := openRetry(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if err := unix.SetNonblock(fd, false); err != nil { // the command shares it
		unix.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
