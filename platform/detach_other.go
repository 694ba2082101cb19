//go:build !linux

package platform

import (
	"errors"
	"fmt"
	"os"
)

// StartDetached returns errors.ErrUnsupported: the daemon runs on Linux only.
func StartDetached(path string, _, _ []string, _ *os.File) (*os.Process, error) {
	return nil, fmt.Errorf("start %s: %w", path, errors.ErrUnsupported)
}
