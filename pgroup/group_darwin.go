package pgroup

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

func groupAttr(c Command) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: !c.Session, Setsid: c.Session, Setctty: c.Terminal}
}

// signalGroup negates a PID, guarded as on Linux.
func signalGroup(_ *os.Process, pgid int, sig syscall.Signal) error {
	if pgid <= 1 || pgid == unix.Getpgrp() {
		return fmt.Errorf("signal group %d: %w", pgid, unix.EINVAL)
	}
	switch err := unix.Kill(-pgid, sig); err {
	case nil:
		return nil
	case unix.ESRCH:
		return platform.ErrGone
	default:
		return fmt.Errorf("signal group %d: %w", pgid, err)
	}
}

func exitOf(st *os.ProcessState) platform.Exit {
	ws, ok := st.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return platform.Exit{Code: -1, Signal: ws.Signal(), CoreDumped: ws.CoreDump()}
	}
	return platform.Exit{Code: st.ExitCode()}
}
