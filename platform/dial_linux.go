package platform

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DialUnix connects to a stream socket at path and returns it in the
// netpoller, close-on-exec. It does not wait: a full backlog is EAGAIN, a path
// on which nobody listens ECONNREFUSED, none ENOENT (connect(2), unix(7)), all
// to be found with errors.Is. Package net does the same and costs every program
// that links it 0.8 ms of start-up.
func DialUnix(path string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: socket: %w", path, err)
	}
	for {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// StillOpen reports whether the other end of a connection that has nothing to
// say is there: neither closed nor, out of turn, sending.
func StillOpen(conn *os.File) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		open = err == unix.EAGAIN
	})
	return err == nil && open
}

// RunsProcsup reports whether a process is there and runs a program of that
// name. It is a hint: a number can be another's by now.
func RunsProcsup(pid int) (is bool) {
	whenExecuted(func() bool {
		b, err := readFile("/proc/"+strconv.Itoa(pid)+"/cmdline", make([]byte, 512))
		exe, _, _ := strings.Cut(string(b), "\x00")
		is = strings.HasPrefix(exe[strings.LastIndexByte(exe, '/')+1:], "procsup")
		return err != nil || len(b) > 0 || withoutEnviron(pid)
	})
	return is
}

// AwaitGone waits until a process has ended, at most so long, and reports
// whether it has.
func AwaitGone(pid int, atMost time.Duration) bool {
	fd, err := OpenPidfd(pid)
	if err != nil {
		return true
	}
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	defer unix.Close(fd)
	for end := time.Now().Add(atMost); ; {
		n, err := unix.Poll(p, int(max(0, time.Until(end).Milliseconds())))
		if err != unix.EINTR {
			return n > 0
		}
	}
}
