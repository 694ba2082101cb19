package main

import (
	"io"
	"io/fs"
	"os"
)

// isPipe reports whether a file is a pipe or a socket: its end tells that
// somebody went away.
func isPipe(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0
}

// untilEOF reads what comes and forgets it.
func untilEOF(f *os.File) { _, _ = io.Copy(io.Discard, f) }

// hasInput reports whether there may be something to read: not on a closed
// descriptor, nor in /dev/null.
func hasInput(f *os.File) bool {
	st, err := f.Stat()
	if err != nil {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(st, null)
}
