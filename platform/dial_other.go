//go:build !linux

package platform

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// DialUnix returns errors.ErrUnsupported: the daemon runs on Linux only.
func DialUnix(path string) (*os.File, error) {
	return nil, fmt.Errorf("connect to %s: %w", path, errors.ErrUnsupported)
}

// StillOpen is false: there are no connections here.
func StillOpen(*os.File) bool { return false }

// RunsProcsup is false: nothing is known.
func RunsProcsup(int) bool { return false }

// AwaitGone is false: nothing is known.
func AwaitGone(int, time.Duration) bool { return false }
