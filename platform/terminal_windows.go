package platform

import (
	"errors"
	"fmt"

	"golang.org/x/sys/windows"
)

// IsTerminal reports whether fd, a handle, is a console.
func IsTerminal(fd int) bool {
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(fd), &mode) == nil
}

// Pgrp is 0: Windows has no process groups of the Unix kind.
func Pgrp() int { return 0 }

// Session returns errors.ErrUnsupported.
func Session(pid int) (int, error) {
	return 0, fmt.Errorf("sessions of processes: %w", errors.ErrUnsupported)
}
