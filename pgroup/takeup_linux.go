package pgroup

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// TakeUp makes a Group of a command that another process started and that is
// still there, running or unreaped: ErrGone if the number does not name it any
// more. See OpenRemote for what such a Group can do.
func TakeUp(id platform.Identity, r Remote) (*Group, error) {
	fd, err := platform.OpenPidfd(id.PID)
	if err != nil {
		return nil, err
	}
	st, err := platform.ReadStat(id.PID)
	if err == nil && st.StartTicks != id.StartTicks {
		err = platform.ErrGone
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	r.PID, r.Pidfd = id.PID, fd
	return OpenRemote(r)
}

// TakeUpByPidfd makes a Group of a command that another process started, and
// that may have been reaped: pidfd, which is taken over, was opened while its
// number was sure.
func TakeUpByPidfd(id platform.Identity, pidfd *os.File, r Remote) (*Group, error) {
	defer pidfd.Close()
	rc, err := pidfd.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	cerr := rc.Control(func(n uintptr) { fd, err = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 3) })
	if err = errors.Join(err, cerr); err != nil {
		return nil, fmt.Errorf("pidfd of command %d: %w", id.PID, err)
	}
	r.PID, r.Pidfd = id.PID, fd
	g, err := OpenRemote(r)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	if g.identity.StartTicks = id.StartTicks; g.base == 0 && r.Session {
		g.base = id.PID
	}
	return g, nil
}

// AwaitEnd waits for the end of a command taken up from another process that
// does not tell how it ended; known is false when the kernel does not either.
func (g *Group) AwaitEnd() (e platform.Exit, known bool) {
	<-g.done // a file has one reader at a time: done would come only once the parent has reaped
	return platform.AwaitStranger(g.pidfd)
}
