package platform

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dieBySignal returns only when sig did not end the process. The disposition is
// set by the system call itself, as signal.Reset leaves Go's own handlers in
// place, which print every goroutine for QUIT, ABRT, SEGV and their like. The
// signal goes to this very thread: it has taken effect before tgkill(2) returns.
func dieBySignal(sig syscall.Signal) {
	if sig < 1 || sig > maxSignal || !endsByDefault(sig) {
		return
	}
	runtime.LockOSThread()
	// Not dumpable: a core_pattern that is a pipe ignores RLIMIT_CORE (core(5)).
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	var core unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &core) == nil {
		core.Cur = 0
		unix.Setrlimit(unix.RLIMIT_CORE, &core)
	}
	// struct sigaction of the kernel: all zero is SIG_DFL, no flags, empty mask,
	// in whatever order an architecture has its fields.
	var byDefault [8]uint64
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, sigsetSize, 0, 0)
	var set unix.Sigset_t
	setSignal(&set, sig)
	unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil)
	unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
}

const sigsetSize = 8 // _NSIG/8 in bytes, as the kernel demands; 16 on MIPS, where DieBySignal exits

// setSignal adds a signal to a set.
func setSignal(set *unix.Sigset_t, sig syscall.Signal) {
	const bits = 8 * unsafe.Sizeof(set.Val[0])
	set.Val[uintptr(sig-1)/bits] |= 1 << (uintptr(sig-1) % bits)
}

// endsByDefault reports whether the default action of a signal is to end the
// process, signal(7).
func endsByDefault(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH,
		unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return false
	}
	return true
}
