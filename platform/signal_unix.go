//go:build unix

package platform

import (
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const maxSignal = 64 // Linux: real-time signals go to 64, signal(7)

var signalNames = func() map[syscall.Signal]string {
	m := make(map[syscall.Signal]string, 40)
	for s := syscall.Signal(1); s < 32; s++ {
		if n := unix.SignalName(s); n != "" {
			m[s] = strings.TrimPrefix(n, "SIG")
		}
	}
	return m
}()

// ClassOf tells what a supervisor does with a signal.
func ClassOf(sig syscall.Signal) SignalClass {
	switch sig {
	case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
		return AsksStop
	case unix.SIGCHLD:
		return OfChild
	case unix.SIGCONT:
		return Continues
	case unix.SIGTSTP, unix.SIGWINCH:
		return OfJob
	}
	return PassOn
}

// CatchStops delivers to c the signals that ask for a stop. One that was
// ignored when this process started stays so (nohup), except INT: sh starts
// background jobs with it ignored, and those must still be cancellable.
func CatchStops(c chan<- os.Signal) {
	signal.Notify(c, unix.SIGINT)
	for _, s := range []os.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// CatchRest delivers to c everything else that a supervisor has to see; each
// signal costs Go some 20 µs. It leaves alone what must not be passed on (URG,
// which Go's scheduler sends itself; PROF, which is never delivered), TTIN and
// TTOU, whose default action we want, and what was ignored when this process
// started, so that the programs it starts ignore it too.
func CatchRest(c chan<- os.Signal) {
	for s := syscall.Signal(1); s <= maxSignal; s++ {
		switch s {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGURG, unix.SIGPROF, unix.SIGTTIN, unix.SIGTTOU, 32, 33:
			continue // 32 and 33 belong to the C library
		}
		if ClassOf(s) != AsksStop && !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// ChildSignal is what a process gets when a child ends or stops.
const ChildSignal = syscall.SIGCHLD
