//go:build !linux

package platform

import "syscall"

// dieBySignal leaves it to the exit code: Go's handlers cannot be taken out
// without libc here.
func dieBySignal(syscall.Signal) {}
