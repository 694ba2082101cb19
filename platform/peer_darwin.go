package platform

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerCred asks the kernel who is at the other end of a unix socket
// (LOCAL_PEERCRED and LOCAL_PEERPID, unix(4)).
func PeerCred(conn syscall.RawConn) (Cred, error) {
	var c Cred
	var err error
	if cerr := conn.Control(func(fd uintptr) { c, err = peerCredOf(int(fd)) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return Cred{}, fmt.Errorf("peer credentials: %w", err)
	}
	return c, nil
}

func peerCredOf(fd int) (Cred, error) {
	x, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return Cred{}, err
	}
	c := Cred{UID: x.Uid}
	if x.Ngroups > 0 {
		c.GID = x.Groups[0]
	}
	c.PID, err = unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	return c, err
}
