package platform

import (
	"os"
	"syscall"
)

// DieBySignal ends this process as sig would have ended it, so that the parent
// sees WIFSIGNALED with sig: shells then show 128+n and stop their loops on ^C.
// There is no core file and no goroutine dump, and nothing is waited for; what
// is buffered has to be written before. It never returns: where the signal
// cannot end this process it exits with code 128+n. That is so for signals that
// stop or do nothing by default (STOP, TSTP, CHLD, CONT …), as PID 1, for which
// the kernel drops them (pid_namespaces(7)), and on systems other than Linux.
func DieBySignal(sig syscall.Signal) {
	dieBySignal(sig)
	os.Exit(128 + int(sig))
}
