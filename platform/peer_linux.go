package platform

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerCred asks the kernel who is at the other end of a unix socket
// (SO_PEERCRED, unix(7)). conn is what SyscallConn of a net.UnixConn returns.
// Bind nothing to the PID alone, which may be another's by now: see PeerPidfd.
func PeerCred(conn syscall.RawConn) (Cred, error) {
	var c *unix.Ucred
	var err error
	if cerr := conn.Control(func(fd uintptr) {
		c, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		err = cerr
	}
	if err != nil {
		return Cred{}, fmt.Errorf("peer credentials: %w", err)
	}
	return Cred{int(c.Pid), c.Uid, c.Gid}, nil
}

// PeerPidfd opens a pidfd of the process at the other end (SO_PEERPIDFD, Linux
// 6.5), closed on exec. errors.ErrUnsupported on older kernels, ErrGone when the
// process was reaped. The caller closes it.
func PeerPidfd(conn syscall.RawConn) (int, error) {
	fd := -1
	var err error
	if cerr := conn.Control(func(s uintptr) {
		fd, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); cerr != nil {
		err = cerr
	}
	switch err {
	case nil:
		return fd, nil
	case unix.ENOPROTOOPT:
		err = errors.ErrUnsupported
	case unix.ESRCH, unix.EINVAL: // 6.5 to 6.15 answer EINVAL for a reaped peer
		err = ErrGone
	}
	return -1, fmt.Errorf("peer's pidfd: %w", err)
}
