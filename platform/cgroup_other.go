//go:build !linux

package platform

import (
	"context"
	"errors"
	"fmt"
)

var errNoCgroup = fmt.Errorf("cgroup v2 exists on Linux only: %w", errors.ErrUnsupported)

// A Cgroup exists on Linux only; here no function returns one.
type Cgroup struct{}

// FindCgroup returns errors.ErrUnsupported.
func FindCgroup() (CgroupHome, error) { return CgroupHome{}, errNoCgroup }

// NewCgroup returns errors.ErrUnsupported.
func NewCgroup(name string) (*Cgroup, error) { return nil, errNoCgroup }

// OpenCgroup returns errors.ErrUnsupported.
func OpenCgroup(path string) (*Cgroup, error) { return nil, errNoCgroup }

// EnterCgroup returns errors.ErrUnsupported.
func EnterCgroup(dir string) error { return errNoCgroup }

// New returns errors.ErrUnsupported.
func (h CgroupHome) New(name string) (*Cgroup, error) { return nil, errNoCgroup }

// Sweep returns errors.ErrUnsupported.
func (h CgroupHome) Sweep() (int, error) { return 0, errNoCgroup }

// FD is −1.
func (c *Cgroup) FD() int { return -1 }

// Path is "".
func (c *Cgroup) Path() string { return "" }

// CloseFD does nothing.
func (c *Cgroup) CloseFD() {}

// Rest does nothing.
func (c *Cgroup) Rest() {}

// Close does nothing.
func (c *Cgroup) Close() error { return nil }

// Populated returns errors.ErrUnsupported.
func (c *Cgroup) Populated() (bool, error) { return false, errNoCgroup }

// WaitEmpty returns errors.ErrUnsupported.
func (c *Cgroup) WaitEmpty(ctx context.Context) error { return errNoCgroup }

// Procs returns errors.ErrUnsupported.
func (c *Cgroup) Procs() ([]int, error) { return nil, errNoCgroup }

// Kill returns errors.ErrUnsupported.
func (c *Cgroup) Kill() error { return errNoCgroup }

// Freeze returns errors.ErrUnsupported.
func (c *Cgroup) Freeze(on bool) error { return errNoCgroup }

// MemoryPeak returns errors.ErrUnsupported.
func (c *Cgroup) MemoryPeak() (int64, error) { return 0, errNoCgroup }

// Remove returns errors.ErrUnsupported.
func (c *Cgroup) Remove() error { return errNoCgroup }
