//go:build !linux

package capture

import (
	"errors"
	"os"
)

// An input is the read end of a pipe. A goroutine of its own waits for the
// first byte, as the system's poller cannot be asked.
type input struct {
	f      *os.File
	ready  chan struct{}
	first  chan chunk
	held   []byte // read by the wait, not moved yet
	err    error
	copies bool
	size   int
	armed  bool
}

type chunk struct {
	b   []byte
	err error
}

func newPipe() (r, w *os.File, err error) { return os.Pipe() }

func takeInput(f *os.File) (*input, error) {
	return &input{f: f, ready: make(chan struct{}, 1), first: make(chan chunk, 1), copies: true}, nil
}

func (in *input) watch() error { return nil }
func (in *input) close()       { in.f.Close() }

// arm starts the read that waits, unless one does.
func (in *input) arm() {
	if len(in.held) > 0 || in.err != nil {
		in.ready <- struct{}{}
		return
	}
	if in.armed {
		return
	}
	in.armed = true
	go func() { // ends with the next byte, or when the file is closed
		b := make([]byte, pipeSmall)
		n, err := in.f.Read(b)
		in.first <- chunk{b[:n], err}
		in.ready <- struct{}{}
	}()
}

func (in *input) disarm() {}

func (in *input) waiting() int64 { return int64(len(in.held)) }

func (in *input) splice(*os.File, int64, int64) (int64, error) { return 0, errors.ErrUnsupported }

func (in *input) read(p []byte) (int, error) {
	select {
	case c := <-in.first:
		in.armed = false
		in.held, in.err = c.b, c.err
	default:
	}
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

// work moves what the wait has read.
func (p *pump) work() {
	for !p.eof {
		if _, err := p.move(p.s.awaitWindow(chunkMax, p.quit)); err != nil {
			return
		}
	}
}
