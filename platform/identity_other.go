//go:build !linux

package platform

import (
	"errors"
	"fmt"
)

// BootID is empty: this system has no id of its boot.
func BootID() string { return "" }

// Identify is not supported here: there is no start time that could be read
// without racing.
func Identify(pid int) (Identity, error) {
	return Identity{PID: pid}, fmt.Errorf("start time of process %d: %w", pid, errors.ErrUnsupported)
}

// Liveness is always Unverifiable here.
func (id Identity) Liveness() Liveness { return Unverifiable }

// CommandLine is not known here.
func CommandLine(int, int) string { return "" }
