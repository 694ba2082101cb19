//go:build !linux

package platform

import "syscall"

// PeekStopped reports nothing here.
func PeekStopped(int) syscall.Signal { return 0 }
