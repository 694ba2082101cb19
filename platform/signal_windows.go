package platform

import (
	"os"
	"os/signal"
	"syscall"
)

const maxSignal = 15

// Windows has no signals; these names only let flags and records be read.
var signalNames = map[syscall.Signal]string{
	syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT",
	syscall.SIGKILL: "KILL", syscall.SIGTERM: "TERM",
}

// ClassOf tells what a supervisor does with a signal.
func ClassOf(syscall.Signal) SignalClass { return AsksStop }

// CatchStops delivers ^C to c.
func CatchStops(c chan<- os.Signal) { signal.Notify(c, os.Interrupt) }

// CatchRest does nothing.
func CatchRest(chan<- os.Signal) {}

// ChildSignal does not exist here; the number is never delivered.
const ChildSignal = syscall.Signal(17)
