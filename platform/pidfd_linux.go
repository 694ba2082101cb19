package platform

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenPidfd opens a descriptor for a process, non-blocking and closed on exec
// (pidfd_open(2), Linux 5.3; PIDFD_NONBLOCK 5.10). ErrGone when it does not
// exist. The caller closes it.
func OpenPidfd(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err == unix.EINVAL {
		fd, err = unix.PidfdOpen(pid, 0)
	}
	switch err {
	case nil:
		return fd, nil
	case unix.ESRCH:
		return -1, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return -1, fmt.Errorf("pidfd of process %d: %w", pid, err)
}

// SignalPidfd signals the one process behind a pidfd, which cannot hit a
// stranger. ErrGone when it has been reaped; a zombie takes it silently.
func SignalPidfd(pidfd int, sig syscall.Signal) error {
	return pidfdErr(unix.PidfdSendSignal(pidfd, sig, nil, 0), sig)
}

// SignalPidfdGroup signals the process group of the process behind a pidfd
// (PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9; EINVAL before it is reported as
// such). It reaches members even after the leader was reaped.
func SignalPidfdGroup(pidfd int, sig syscall.Signal) error {
	const processGroup = 1 << 2
	return pidfdErr(unix.PidfdSendSignal(pidfd, sig, nil, processGroup), sig)
}

func pidfdErr(err error, sig syscall.Signal) error {
	switch err {
	case nil:
		return nil
	case unix.ESRCH:
		return ErrGone
	}
	if sig == 0 {
		return fmt.Errorf("may not be signalled: %w", err)
	}
	return fmt.Errorf("send %s: %w", SignalName(sig), err)
}

// SetSubreaper makes this process the parent of every orphan below it
// (PR_SET_CHILD_SUBREAPER, Linux 3.4). It holds until it ends and is not
// inherited.
func SetSubreaper() error { return subreaper(1) }

// UnsetSubreaper takes that back, for a process that becomes another program.
func UnsetSubreaper() error { return subreaper(0) }

func subreaper(on uintptr) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, on, 0, 0, 0); err != nil {
		return fmt.Errorf("set subreaper to %d: %w", on, err)
	}
	return nil
}
