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
	Mark    uint64

	Siblings *Siblings
}

// Siblings are of no use here.
type Siblings struct{}

// NewSiblings is of no use here.
func NewSiblings(int, func(int) bool) *Siblings { return nil }

// TakeUp is not supported here.
func TakeUp(id platform.Identity, _ Remote) (*Group, error) {
	return nil, fmt.Errorf("take up process %d: %w", id.PID, errors.ErrUnsupported)
}

// TakeUpByPidfd is not supported here.
func TakeUpByPidfd(id platform.Identity, _ *os.File, _ Remote) (*Group, error) {
	return nil, fmt.Errorf("take up process %d: %w", id.PID, errors.ErrUnsupported)
}

// A Found is never made here.
type Found struct{ Leader platform.Identity }

// Left is always empty here.
type Left struct{}

// FindLeft finds nothing here.
func FindLeft() Left { return Left{} }

// Of finds nothing here.
func (Left) Of(string, uint64) (Found, bool) { return Found{}, false }

// CgroupHolds is false here.
func CgroupHolds(string) bool { return false }

// TakeUpLeft makes a group of nothing here.
func TakeUpLeft(Remote) *Group { return &Group{} }

// AwaitEnd knows nothing here.
func (g *Group) AwaitEnd() (platform.Exit, bool) { return platform.Exit{}, false }

// Release does nothing here.
func (g *Group) Release() {}

// Pidfd is nil here.
func (g *Group) Pidfd() *os.File { return nil }
