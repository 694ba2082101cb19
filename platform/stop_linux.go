package platform

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Suspends reports whether a signal asks a whole job to stop: TSTP.
func Suspends(sig syscall.Signal) bool { return sig == unix.SIGTSTP }

// StopGroup stops this process and the rest of its process group by sig (TSTP,
// TTIN or TTOU), as the terminal would, and returns once this process was
// continued; at once where the kernel does not stop it. The action is set by the
// system call itself: signal.Reset leaves Go's handler in place for these
// signals. The copy that goes to the whole group is ignored here, as it might
// stop us before or after our own: then CONT would be followed by a second stop.
// Our own has taken effect before tgkill(2) returns.
func StopGroup(sig syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ignore := [8]uint64{1}       // SIG_IGN stands first in struct sigaction on all ports of Go but mips
	var byDefault, old [8]uint64 // see dieBySignal
	action := func(set, get *[8]uint64) {
		unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), sigsetSize, 0, 0)
	}
	action(&ignore, &old)
	_ = unix.Kill(0, sig)
	action(&ignore, nil) // drops a copy that was queued, as one is while a thread blocks it
	action(&byDefault, nil)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
	action(&old, nil)
}
