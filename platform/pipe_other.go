//go:build !linux

package platform

import "os"

// Pipe is os.Pipe.
func Pipe() (r, w *os.File, err error) { return os.Pipe() }
