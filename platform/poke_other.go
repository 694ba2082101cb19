//go:build !linux

package platform

import (
	"errors"
	"fmt"
)

// PokeNamed is not supported here.
func PokeNamed(pid int, name string) error {
	return fmt.Errorf("signal process %d: %w", pid, errors.ErrUnsupported)
}
