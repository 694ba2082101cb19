package say

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Main sends each message as a datagram to NOTIFY_SOCKET. With "barrier" it waits
// until everything before was handled; "fds" stands for two descriptors to keep.
func Main(messages []string) int {
	to := &unix.SockaddrUnix{Name: os.Getenv("NOTIFY_SOCKET")}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	for _, m := range messages {
		if err != nil {
			break
		}
		switch m {
		case "barrier":
			err = barrier(fd, to)
		case "fds":
			err = unix.Sendmsg(fd, []byte("FDSTORE=1\nFDNAME=x"), unix.UnixRights(0, 1), to, 0)
		case "long":
			err = unix.Sendto(fd, []byte("STATUS="+strings.Repeat("x", 5000)), 0, to)
		default:
			err = unix.Sendto(fd, []byte(m), 0, to)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "say:", err)
		return 1
	}
	return 0
}

// barrier is sd_notify_barrier(3).
func barrier(fd int, to unix.Sockaddr) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	err := unix.Sendmsg(fd, []byte("BARRIER=1"), unix.UnixRights(p[1]), to, 0)
	unix.Close(p[1])
	if err != nil {
		return err
	}
	poll := []unix.PollFd{{Fd: int32(p[0])}}
	for {
		n, err := unix.Poll(poll, 20_000)
		switch {
		case err == unix.EINTR:
			continue
		case n == 0:
			return fmt.Errorf("the barrier was not handled")
		}
		return err
	}
}
