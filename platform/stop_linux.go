package platform

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// StopGroup stops this process and the rest of its process group by sig (TSTP,
// TTIN or TTOU), as the terminal would, and returns once this process was
// continued; at once where the kernel does not stop it. The default action is
// set by the system call itself: signal.Reset leaves Go's handler in place for
// these signals. The thread-directed copy has taken effect before tgkill(2)
// returns; whatever is still pending is discarded by CONT.
func StopGroup(sig syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var byDefault, old [8]uint64 // see dieBySignal
	action := func(set, get *[8]uint64) {
		unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), sigsetSize, 0, 0)
	}
	action(&byDefault, &old)
	_ = unix.Kill(0, sig)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
	action(&old, nil)
}
