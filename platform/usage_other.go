//go:build !linux

package platform

import (
	"errors"
	"fmt"
)

// PeekUsage is not supported here.
func PeekUsage(pid int) (Usage, error) {
	return Usage{}, fmt.Errorf("usage of process %d: %w", pid, errors.ErrUnsupported)
}

// DiskSize is not supported here.
func DiskSize(path string) (int64, error) {
	return 0, fmt.Errorf("size of the file system of %s: %w", path, errors.ErrUnsupported)
}

// FDLimit is a guess that fits every system here.
func FDLimit() (soft, hard uint64) { return 1024, 1024 }

// RaiseFDLimit does nothing: Go's runtime raises it by itself.
func RaiseFDLimit() {}

// SelfMaxRSS is not known here.
func SelfMaxRSS() int64 { return 0 }
