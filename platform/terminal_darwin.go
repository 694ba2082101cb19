package platform

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether fd is a terminal.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TIOCGETA)
	return err == nil
}

// Pgrp is the process group of this process.
func Pgrp() int { return unix.Getpgrp() }

// Session is the session of a process, 0 for our own; ErrGone when there is no
// such process.
func Session(pid int) (int, error) {
	sid, err := unix.Getsid(pid)
	if err == unix.ESRCH {
		err = ErrGone
	}
	if err != nil {
		return 0, fmt.Errorf("session of process %d: %w", pid, err)
	}
	return sid, nil
}
