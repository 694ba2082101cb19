package platform

import "errors"

// ErrNoTerminal says that this process has no controlling terminal.
var ErrNoTerminal = errors.New("no controlling terminal")

// A WinSize is a terminal's size in characters, and in pixels where the
// terminal tells (0 where not).
type WinSize struct {
	Rows, Cols, XPixels, YPixels uint16
}
