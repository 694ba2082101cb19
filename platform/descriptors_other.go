//go:build !linux

package platform

import "os"

// InheritedFDs lists nothing here.
func InheritedFDs() []int { return nil }

// CloseFDs does nothing here.
func CloseFDs([]int) {}

// LetGo does nothing here.
func LetGo(fd, null int) {}

// SetCloexec does nothing here.
func SetCloexec(fd int) bool { return fd >= 0 }

// NeedFDs checks nothing here.
func NeedFDs(int) error { return nil }

// OpenInput opens a file for a command to read from.
func OpenInput(name string) (*os.File, error) { return os.Open(name) }
