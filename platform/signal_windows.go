package platform

import "syscall"

const maxSignal = 15

// Windows has no signals; these names only let flags and records be read.
var signalNames = map[syscall.Signal]string{
	syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT",
	syscall.SIGKILL: "KILL", syscall.SIGTERM: "TERM",
}
