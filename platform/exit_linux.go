package platform

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cldSiginfo is the part of siginfo_t that waitid(2) fills on 64-bit Linux:
// si_status stands at offset 24.
type cldSiginfo struct {
	signo, errno, code int32
	_                  int32
	pid                int32
	uid                uint32
	status             int32
	_                  [100]byte
}

func waitid(idType, id, options int) (cldSiginfo, error) {
	for {
		var si cldSiginfo
		err := unix.Waitid(idType, id, (*unix.Siginfo)(unsafe.Pointer(&si)), options, nil)
		if err != unix.EINTR {
			return si, err
		}
	}
}

func (si *cldSiginfo) exit() Exit {
	const cldExited, cldDumped = 1, 3 // sigaction(2)
	if si.code == cldExited {
		return Exit{Code: int(si.status)}
	}
	return Exit{Code: -1, Signal: syscall.Signal(si.status), CoreDumped: si.code == cldDumped}
}

// PeekExit reports how the child behind a pidfd ended, if it has, and leaves
// it a zombie so that its number stays taken. It does not block.
// P_PIDFD needs Linux 5.4.
func PeekExit(pidfd int) (Exit, bool, error) {
	si, err := waitid(unix.P_PIDFD, pidfd, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG)
	if err == unix.EAGAIN { // a non-blocking pidfd, Linux 5.10
		return Exit{}, false, nil
	}
	if err != nil {
		return Exit{}, false, fmt.Errorf("peek at exit: %w", err)
	}
	if si.signo == 0 {
		return Exit{}, false, nil
	}
	return si.exit(), true, nil
}

// PeekStopped reports the signal that stopped a child since the last call, or
// 0. It takes the report, as wait(2) does, but never an exit.
func PeekStopped(pid int) syscall.Signal {
	si, err := waitid(unix.P_PID, pid, unix.WSTOPPED|unix.WNOHANG)
	if err != nil || si.signo == 0 {
		return 0
	}
	return syscall.Signal(si.status)
}

// FirstZombie returns the PID of a child of ours that has ended and was not
// reaped, 0 when there is none. The kernel always shows the same first one.
func FirstZombie() int {
	si, err := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG)
	if err != nil || si.signo == 0 {
		return 0
	}
	return int(si.pid)
}

// Reap waits for one child by number, frees the number and returns how it
// ended. It blocks until the child has ended.
func Reap(pid int) (Exit, Usage, error) {
	if pid <= 0 { // wait4(2) reads these as any child, or one of a group
		return Exit{}, Usage{}, fmt.Errorf("reap process %d: %w", pid, unix.EINVAL)
	}
	var ws unix.WaitStatus
	var ru unix.Rusage
	for {
		_, err := unix.Wait4(pid, &ws, 0, &ru)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return Exit{}, Usage{}, fmt.Errorf("reap process %d: %w", pid, err)
		}
		break
	}
	u := Usage{
		User:   time.Duration(ru.Utime.Nano()),
		System: time.Duration(ru.Stime.Nano()),
		MaxRSS: ru.Maxrss << 10, // getrusage(2): kilobytes on Linux
	}
	return exitOf(ws), u, nil
}

func exitOf(ws unix.WaitStatus) Exit {
	if ws.Signaled() {
		return Exit{Code: -1, Signal: ws.Signal(), CoreDumped: ws.CoreDump()}
	}
	return Exit{Code: ws.ExitStatus()}
}

// ReapPidfd reaps the child behind a pidfd if it has ended, and says so. It
// cannot take another child that got the number meanwhile.
func ReapPidfd(pidfd int) bool {
	si, err := waitid(unix.P_PIDFD, pidfd, unix.WEXITED|unix.WNOHANG)
	return err == nil && si.signo != 0
}

// ReapedExit is how a process ended that somebody else has reaped, from a
// pidfd opened before (PIDFD_INFO_EXIT, Linux 6.15). False when the kernel
// does not tell; then Code is −1.
func ReapedExit(pidfd int) (Exit, bool) {
	info, err := pidfdGetInfo(pidfd, unix.PIDFD_INFO_EXIT)
	if err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return Exit{Code: -1}, false
	}
	return exitOf(unix.WaitStatus(info.Exit_code)), true
}

// ReapIfEnded reaps one child by number if it has ended, and says so.
func ReapIfEnded(pid int) bool {
	for pid > 0 {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if err != unix.EINTR {
			return err == nil && got == pid
		}
	}
	return false
}

// SelfMaxRSS is this process's own memory high-water mark in bytes; a child
// starts with it, because exec does not lower it.
func SelfMaxRSS() int64 {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return ru.Maxrss << 10
}

// AwaitExit blocks until a child has ended and leaves it a zombie. It holds an
// OS thread.
func AwaitExit(pid int) (Exit, error) {
	si, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT)
	if err != nil {
		return Exit{}, fmt.Errorf("await exit of process %d: %w", pid, err)
	}
	return si.exit(), nil
}

// HasChildren reports whether this process has any child at all.
func HasChildren() bool {
	_, err := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG)
	return err == nil
}
