//go:build !linux

package pgroup

import (
	"errors"
	"fmt"
	"time"
)

// A Guard cannot be had here: a killed supervisor leaves its command behind.
type Guard struct{}

// StartGuard is not supported here.
func StartGuard(*Group, string, []string, Ladder, time.Time) (*Guard, error) {
	return nil, fmt.Errorf("start guard: %w", errors.ErrUnsupported)
}

// Died is false.
func (d *Guard) Died() bool { return false }

// KeptDeadline is false.
func (d *Guard) KeptDeadline() bool { return false }

// Release does nothing.
func (d *Guard) Release() {}

// Dismiss does nothing.
func (d *Guard) Dismiss() {}

// GuardMain fails.
func GuardMain([]string) int { return 1 }
