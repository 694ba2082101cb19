package keeper

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errClosed says that nobody holds the other end any more.
var errClosed = errors.New("closed")

// sendPacket sends one packet without blocking: unix.EAGAIN when the other
// end's buffer is full, errClosed when there is none.
func sendPacket(sock int, b []byte, fds []int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		err := unix.Sendmsg(sock, b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch err {
		case unix.EINTR:
			continue
		case unix.EPIPE, unix.ECONNRESET, unix.ENOTCONN:
			return errClosed
		}
		return err
	}
}

// A receiver holds the buffers of one socket's reader.
type receiver struct {
	buf [maxMessage + 1]byte
	oob [1024]byte // 253 descriptors and the header need 1028: no sender of ours uses more than 240
}

// packet receives one message and the descriptors beside it, closed on exec;
// the caller closes them. unix.EAGAIN when there is none now, errClosed when
// there will be none. When this process is at its descriptor limit there are
// fewer than were sent. A packet that cannot be read has kind "" and none.
func (r *receiver) packet(sock int) (m message, fds []int, err error) {
	for {
		n, oobn, flags, _, err := unix.Recvmsg(sock, r.buf[:], r.oob[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECONNRESET:
			// The other end died with something unread. That is told once, and
			// before what it had sent, which can still be read (net/unix/af_unix.c,
			// unix_release_sock; __skb_try_recv_datagram looks at sk_err first).
			continue
		case err != nil:
			return message{}, nil, err
		case n == 0 && oobn == 0:
			return message{}, nil, errClosed
		}
		fds = rights(r.oob[:oobn])
		if flags&unix.MSG_TRUNC != 0 {
			err = fmt.Errorf("message longer than %d bytes", maxMessage)
		} else {
			m, err = parse(r.buf[:n])
		}
		if err != nil {
			closeAll(fds)
			return message{Error: err.Error()}, nil, nil
		}
		return m, fds, nil
	}
}

func rights(oob []byte) (fds []int) {
	if len(oob) == 0 {
		return nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range msgs {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// closeAll closes descriptors; -1 is none.
func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}
