//go:build !linux

package platform

import (
	"errors"
	"fmt"
)

// A Watch waits for the end of a process.
type Watch struct{}

// WatchProcess returns errors.ErrUnsupported.
func WatchProcess(id Identity) (*Watch, error) {
	return nil, fmt.Errorf("watch process %d: %w", id.PID, errors.ErrUnsupported)
}

// Done is never closed.
func (*Watch) Done() <-chan struct{} { return nil }

// Close does nothing.
func (*Watch) Close() {}

// SamePIDs is true: there is one numbering.
func SamePIDs(int) bool { return true }
