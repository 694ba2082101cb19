//go:build !linux

package platform

import "syscall"

// PeekStopped reports nothing here.
func PeekStopped(int) syscall.Signal { return 0 }

// UnsetSubreaper has nothing to take back here.
func UnsetSubreaper() error { return nil }
