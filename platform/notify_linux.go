package platform

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxDatagram is what systemd takes at most (NOTIFY_BUFFER_MAX, PIPE_BUF).
const maxDatagram = 4096

// NewNotifyName is a name for ListenNotify that nobody can guess, as it stands
// in NOTIFY_SOCKET. The name is abstract (unix(7)): a process of any user, in
// any root directory, can reach it, within the same network namespace.
func NewNotifyName() string {
	var b [16]byte
	Random(b[:])
	return "@procsup-notify-" + hex.EncodeToString(b[:])
}

// ListenNotify binds a datagram socket of a name that begins with @, in the
// netpoller and close-on-exec, on which the kernel says of each datagram who
// sent it: SO_PASSCRED, and where it is known SO_PASSPIDFD (Linux 6.5).
func ListenNotify(name string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSPIDFD, 1)
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: name})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// A Datagram is one message and what came with it. Close it.
type Datagram struct {
	Data    []byte
	TooLong bool // longer than 4096 bytes: Data is its beginning
	Sender  Cred // as the kernel says; PID 0: of a pid namespace that we do not see
	pidfd   int  // of the sender; -1: not told
	fds     []int
}

// Files is how many descriptors came with it.
func (d *Datagram) Files() int { return len(d.fds) }

// Close closes every descriptor that came with it.
func (d *Datagram) Close() {
	for _, fd := range d.fds {
		unix.Close(fd)
	}
	if d.pidfd >= 0 {
		unix.Close(d.pidfd)
	}
	d.fds, d.pidfd = nil, -1
}

// CgroupID is the id of the control group in which the sender is, or was when
// it ended (PIDFD_GET_INFO; of one that was reaped since Linux 6.15 only).
func (d *Datagram) CgroupID() (uint64, bool) {
	if d.pidfd < 0 {
		return 0, false
	}
	info, err := pidfdGetInfo(d.pidfd, unix.PIDFD_INFO_CGROUPID|unix.PIDFD_INFO_EXIT)
	if err != nil || info.Mask&unix.PIDFD_INFO_CGROUPID == 0 {
		return 0, false
	}
	return info.Cgroupid, true
}

// PeekDatagram waits for a datagram and leaves it in the socket's queue: what
// is not done with it when this process dies is done by who holds the socket
// next. DropDatagram takes it out.
func PeekDatagram(sock *os.File) (*Datagram, error) {
	rc, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	var d *Datagram
	var perr error
	err = rc.Read(func(fd uintptr) bool {
		d, perr = peek(fd)
		return perr != unix.EAGAIN
	})
	return d, errors.Join(err, perr)
}

// PeekPending is PeekDatagram without waiting, whatever the socket's deadline:
// nil when there is none.
func PeekPending(sock *os.File) (d *Datagram, err error) {
	rc, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	var perr error
	err = rc.Control(func(fd uintptr) { d, perr = peek(fd) })
	if perr == unix.EAGAIN {
		perr = nil
	}
	return d, errors.Join(err, perr)
}

func peek(fd uintptr) (*Datagram, error) {
	buf, oob := make([]byte, maxDatagram), make([]byte, unix.CmsgSpace(unix.SizeofUcred)+unix.CmsgSpace(4)+unix.CmsgSpace(4*253))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(int(fd), buf, oob, unix.MSG_PEEK|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		d := &Datagram{Data: buf[:n], TooLong: flags&unix.MSG_TRUNC != 0, pidfd: -1}
		d.control(oob[:oobn])
		return d, nil
	}
}

// control reads what came beside the data.
func (d *Datagram) control(oob []byte) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for _, m := range msgs {
		switch m.Header.Type {
		case unix.SCM_CREDENTIALS:
			if c, err := unix.ParseUnixCredentials(&m); err == nil {
				d.Sender = Cred{int(c.Pid), c.Uid, c.Gid}
			}
		case unix.SCM_RIGHTS:
			fds, _ := unix.ParseUnixRights(&m)
			d.fds = append(d.fds, fds...)
		case unix.SCM_PIDFD:
			m.Header.Type = unix.SCM_RIGHTS // the same form
			if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
				d.pidfd = fds[0]
			}
		}
	}
}

// DropDatagram takes the datagram that was peeked at out of the queue. What came
// with it is closed: a sender that waits for that by a barrier goes on now.
func DropDatagram(sock *os.File) error {
	rc, err := sock.SyscallConn()
	if err != nil {
		return err
	}
	var one [1]byte
	cerr := rc.Control(func(fd uintptr) {
		for {
			if _, _, _, _, err = unix.Recvmsg(int(fd), one[:], nil, unix.MSG_DONTWAIT); err != unix.EINTR {
				return
			}
		}
	})
	return errors.Join(cerr, err)
}

// Pending reports whether a datagram waits in the queue.
func Pending(sock *os.File) bool {
	rc, err := sock.SyscallConn()
	if err != nil {
		return false
	}
	waits := false
	_ = rc.Control(func(fd uintptr) {
		var one [1]byte
		_, _, _, _, err := unix.Recvmsg(int(fd), one[:], nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		waits = err == nil
	})
	return waits
}

// AwaitLine waits until a pipe has a whole line, leaves it there, and returns
// it without its newline. ok is false when every writer is gone, or most bytes
// came, without one. Bytes are looked at by tee(2), which does not take them: a
// line that this process dies over is still there for who holds the pipe next.
func AwaitLine(pipe *os.File, most int) (line []byte, ok bool, err error) {
	rc, err := pipe.SyscallConn()
	if err != nil {
		return nil, false, err
	}
	var terr error
	var over bool
	err = rc.Read(func(fd uintptr) bool {
		line, over, terr = teeLine(int(fd), most)
		return terr != nil || over || line != nil
	})
	if err == nil {
		err = terr
	}
	if i := bytes.IndexByte(line, '\n'); err == nil && i >= 0 {
		return line[:i], true, nil
	}
	return nil, false, err
}

// teeLine looks once: all that is there when a newline is in it, or that it is
// over without one.
func teeLine(fd, most int) (b []byte, over bool, err error) {
	hung := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(hung, 0); err != nil && err != unix.EINTR { // before looking, or a last line could be missed
		return nil, false, err
	}
	gone := hung[0].Revents&unix.POLLHUP != 0
	var scratch [2]int
	if err := unix.Pipe2(scratch[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, false, err
	}
	defer unix.Close(scratch[0])
	defer unix.Close(scratch[1])
	n, err := unix.Tee(fd, scratch[1], most, unix.SPLICE_F_NONBLOCK)
	switch {
	case err == unix.EAGAIN, err == unix.EINTR:
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case n == 0:
		return nil, gone, nil
	}
	b = make([]byte, n)
	m, err := unix.Read(scratch[0], b)
	if err != nil {
		return nil, false, err
	}
	if bytes.IndexByte(b[:m], '\n') >= 0 {
		return b[:m], false, nil
	}
	return nil, gone || m >= most, nil
}

// CgroupID is the id of a control group by its directory: the number of its
// inode (kernfs).
func CgroupID(dir string) (uint64, bool) {
	var st syscall.Stat_t
	if dir == "" || syscall.Stat(dir, &st) != nil {
		return 0, false
	}
	return st.Ino, true
}

// InCgroup reports whether a process is in a control group that procsup made, or
// below it, by the name of its directory, which is given once.
func InCgroup(pid int, dir string) bool {
	name := []byte("/" + filepath.Base(dir) + "/")
	in := false
	_ = eachLine(fmt.Sprintf("/proc/%d/cgroup", pid), func(line []byte) bool {
		p, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("0::"))
		in = ok && bytes.Contains(append(p, '/'), name)
		return !ok
	})
	return in
}
