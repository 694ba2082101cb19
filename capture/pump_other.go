//go:build !linux

package capture

import (
	"errors"
	"os"
	"sync"
)

// A Pipe is the read end of a pipe for [Log.AttachPipe]. What comes next is read
// by a goroutine while the pump sleeps, as there is no other way to wait for it.
type Pipe struct {
	f      *os.File
	wake   func()
	copies bool
	size   int

	mu      sync.Mutex
	reading bool
	held    []byte // read and not moved yet
	err     error
}

// NewPipe makes a pipe and returns the end for a Log, and the one for the command.
func NewPipe() (r *Pipe, w *os.File, err error) {
	f, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return &Pipe{f: f, copies: true}, w, nil
}

// DupPipe is not supported here: there is nobody to hand a pipe over.
func DupPipe(*os.File) (*Pipe, error) { return nil, errors.ErrUnsupported }

// Control calls f with the descriptor, which stays open meanwhile. After Close
// it fails.
func (in *Pipe) Control(f func(fd uintptr)) error {
	c, err := in.f.SyscallConn()
	if err != nil {
		return err
	}
	return c.Control(f)
}

// Close closes a Pipe that was not attached; one that was is its Log's.
func (in *Pipe) Close() error { return in.f.Close() }

func (in *Pipe) rest() {}

func (in *Pipe) watch(wake func()) error {
	in.wake = wake
	return nil
}

func (in *Pipe) look() error { return nil }

// arm reads ahead and calls wake when that has brought something.
func (in *Pipe) arm() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.reading {
		return
	}
	in.reading = true
	go func() { // ends with the next bytes, the end, or when the file is closed
		b := make([]byte, pipeSmall)
		n, err := in.f.Read(b)
		in.mu.Lock()
		in.reading, in.held, in.err = false, b[:n], err
		in.mu.Unlock()
		in.wake()
	}()
}

func (in *Pipe) disarm() {}

func (in *Pipe) waiting() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return int64(len(in.held))
}

func (in *Pipe) splice(*os.File, int64, int64) (int64, error) { return 0, errors.ErrUnsupported }

func (in *Pipe) read(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.held) > 0 {
		n := copy(p, in.held)
		in.held = in.held[n:]
		return n, nil
	}
	if in.err != nil {
		return 0, in.err
	}
	return 0, errDry
}

func (in *Pipe) resize(int) bool { return false }

// work moves what was read ahead.
func (p *pump) work() {
	for !p.stopped() {
		room := p.s.awaitWindow(chunkMax, p.quit)
		if room == 0 {
			return // stopped
		}
		if _, err := p.move(room); err != nil {
			return
		}
	}
}

// takePipe makes a Pipe of f.
func takePipe(f *os.File) (*Pipe, error) { return &Pipe{f: f, copies: true}, nil }
