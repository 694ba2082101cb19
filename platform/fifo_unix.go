//go:build unix

package platform

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A FIFO is a named pipe in a folder that only this user can enter: by its path
// another process of the user gets the other end. Close removes it.
type FIFO struct {
	Path  string
	dir   string
	guard *os.File // both ends: opening the other one does not wait for us
}

// MakeFIFO makes one.
func MakeFIFO() (*FIFO, error) {
	dir, err := os.MkdirTemp("", "procsup-")
	if err != nil {
		return nil, err
	}
	p := &FIFO{Path: filepath.Join(dir, "fifo"), dir: dir}
	if err := unix.Mkfifo(p.Path, 0o600); err != nil {
		p.Close()
		return nil, &os.PathError{Op: "mkfifo", Path: p.Path, Err: err}
	}
	// With O_RDWR opening a FIFO waits for nobody, fifo(7).
	if p.guard, err = os.OpenFile(p.Path, os.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Writer is our end, once somebody has the other one. From then on whoever
// reads sees its end when the writer is closed, and the writer gets EPIPE when
// nobody reads.
func (p *FIFO) Writer() (*os.File, error) {
	w, err := os.OpenFile(p.Path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	p.guard.Close()
	p.guard = nil
	return w, nil
}

// Close removes it.
func (p *FIFO) Close() {
	if p.guard != nil {
		p.guard.Close()
		p.guard = nil
	}
	_ = os.RemoveAll(p.dir)
}
