//go:build !linux

package platform

import "syscall"

// Suspends is false: no signal that arrives here stops a job.
func Suspends(syscall.Signal) bool { return false }

// StopGroup does nothing.
func StopGroup(syscall.Signal) {}
