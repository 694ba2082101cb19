//go:build !linux

package pgroup

import (
	"errors"
	"fmt"
	"os"

	"procsup/platform"
)

// A Remote names a command that another process started.
type Remote struct {
	Session bool
	Many    bool
	Cgroup  string
	Token   string
}

// TakeUp is not supported here.
func TakeUp(id platform.Identity, _ Remote) (*Group, error) {
	return nil, fmt.Errorf("take up process %d: %w", id.PID, errors.ErrUnsupported)
}

// TakeUpByPidfd is not supported here.
func TakeUpByPidfd(id platform.Identity, _ *os.File, _ Remote) (*Group, error) {
	return nil, fmt.Errorf("take up process %d: %w", id.PID, errors.ErrUnsupported)
}

// AwaitEnd knows nothing here.
func (g *Group) AwaitEnd() (platform.Exit, bool) { return platform.Exit{}, false }

// Release does nothing here.
func (g *Group) Release() {}
