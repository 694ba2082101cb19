//go:build !linux

package platform

import (
	"errors"
	"fmt"
	"os"
)

// WatchHangup is for Linux: elsewhere a write tells.
func WatchHangup(f *os.File) (*Watch, error) {
	return nil, fmt.Errorf("watch %s: %w", f.Name(), errors.ErrUnsupported)
}
