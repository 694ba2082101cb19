//go:build !linux

package pgroup

import (
	"syscall"

	"procsup/platform"
)

// A Foreground cannot be had here: the terminal is not handed over.
type Foreground struct{}

// OpenForeground returns nil.
func OpenForeground(bool) *Foreground { return nil }

// Begin does nothing.
func (f *Foreground) Begin(*Group) {}

// HandedOver is false.
func (f *Foreground) HandedOver() bool { return false }

// Stopped does nothing.
func (f *Foreground) Stopped(syscall.Signal) {}

// Continued does nothing.
func (f *Foreground) Continued() {}

// End does nothing.
func (f *Foreground) End(platform.Exit, bool) bool { return false }

// ShareSignal does nothing.
func ShareSignal(syscall.Signal) {}
