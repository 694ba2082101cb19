//go:build !linux

package capture

import (
	"errors"
	"os"
	"sync"
)

// An input is the read end of a pipe. What comes next is read by a goroutine
// while the pump sleeps, as there is no other way to wait for it.
type input struct {
	f      *os.File
	wake   func()
	copies bool
	size   int

	mu      sync.Mutex
	reading bool
	held    []byte // read and not moved yet
	err     error
}

func newPipe() (r, w *os.File, err error) { return os.Pipe() }

func takeInput(f *os.File) (*input, error) { return &input{f: f, copies: true}, nil }

func (in *input) watch(wake func()) error {
	in.wake = wake
	return nil
}

func (in *input) close() { in.f.Close() }

func (in *input) look() error { return nil }

// arm reads ahead and calls wake when that has brought something.
func (in *input) arm() {
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

func (in *input) disarm() {}

func (in *input) waiting() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return int64(len(in.held))
}

func (in *input) splice(*os.File, int64, int64) (int64, error) { return 0, errors.ErrUnsupported }

func (in *input) read(p []byte) (int, error) {
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

func (in *input) resize(int) bool { return false }

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
