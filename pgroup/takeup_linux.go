package pgroup

import (
	"procsup/platform"

	"golang.org/x/sys/unix"
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

// AwaitEnd waits for the end of a command taken up from another process that
// does not tell how it ended; known is false when the kernel does not either.
func (g *Group) AwaitEnd() (e platform.Exit, known bool) { return platform.AwaitStranger(g.pidfd) }
