//go:build !linux

package platform

import (
	"errors"
	"fmt"
)

var errNoTerminalHere = fmt.Errorf("terminal hand-over is built for Linux only: %w", errors.ErrUnsupported)

// A Terminal exists on Linux only; here no function returns a usable one.
type Terminal struct{ fd int }

// TerminalModes are saved terminal settings; here always none.
type TerminalModes struct{}

// OpenTerminal returns ErrNoTerminal: commands then get no terminal of their
// own and stay in the caller's.
func OpenTerminal() (*Terminal, error) { return nil, ErrNoTerminal }

// TerminalAt makes a Terminal of a descriptor and owns it.
func TerminalAt(fd int) *Terminal { return &Terminal{fd} }

// FD is the descriptor.
func (t *Terminal) FD() int { return t.fd }

// Close does nothing.
func (t *Terminal) Close() error { return nil }

// Foreground returns errors.ErrUnsupported.
func (t *Terminal) Foreground() (int, error) { return 0, errNoTerminalHere }

// SetForeground returns errors.ErrUnsupported.
func (t *Terminal) SetForeground(pgid int) error { return errNoTerminalHere }

// Modes returns errors.ErrUnsupported.
func (t *Terminal) Modes() (TerminalModes, error) { return TerminalModes{}, errNoTerminalHere }

// Restore returns errors.ErrUnsupported.
func (t *Terminal) Restore(m TerminalModes) error { return errNoTerminalHere }

// MakeRaw returns errors.ErrUnsupported.
func (t *Terminal) MakeRaw() (TerminalModes, error) { return TerminalModes{}, errNoTerminalHere }

// Size returns errors.ErrUnsupported.
func (t *Terminal) Size() (WinSize, error) { return WinSize{}, errNoTerminalHere }

// SetSize returns errors.ErrUnsupported.
func (t *Terminal) SetSize(s WinSize) error { return errNoTerminalHere }

// GroupMembers lists nothing: process groups are read on Linux only.
func GroupMembers(pgid int) []int { return nil }

// GroupIsOrphaned is false: not known here.
func GroupIsOrphaned(pgid int) bool { return false }
