package main

import (
	"io"
	"os"
	"time"

	"github.com/creack/pty"

	"procsup/capture"
	"procsup/platform"
)

// A relay runs between our own streams and a terminal made for the command.
type relay struct {
	master, slave *os.File
	ours          *platform.Terminal // our own terminal, nil if stdin is none
	modes         platform.TerminalModes
	raw           bool
	out           io.Writer
	done          chan struct{} // closed when the master has given all
	active        chan struct{} // a byte came
}

func openRelay() (*relay, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, err
	}
	r := &relay{master: master, slave: slave, done: make(chan struct{}), active: make(chan struct{}, 1)}
	if platform.IsTerminal(0) {
		r.ours = platform.TerminalAt(0)
		r.resize()
	}
	return r, nil
}

// resize gives the command's terminal the size of ours.
func (r *relay) resize() {
	if r.ours == nil {
		return
	}
	size, err := r.ours.Size()
	if err != nil {
		return
	}
	_ = pty.Setsize(r.master, &pty.Winsize{Rows: size.Rows, Cols: size.Cols, X: size.XPixels, Y: size.YPixels})
}

// start begins to relay. Keys go to the command's terminal as they are, which
// turns ^C and ^Z into signals there.
func (r *relay) start(log *capture.Log, pass bool) {
	r.slave.Close()
	var to []io.Writer
	if pass {
		to = append(to, os.Stdout)
	}
	if log != nil {
		to = append(to, log.Feed(capture.Stdout))
	}
	r.out = io.MultiWriter(to...)
	if r.ours != nil {
		if m, err := r.ours.MakeRaw(); err == nil {
			r.modes, r.raw = m, true
		}
	}
	go r.read()  // ends when the last holder of the slave is gone, or by close
	go r.write() // ends with our stdin, or with this process
}

func (r *relay) read() {
	defer close(r.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := r.master.Read(buf)
		if n > 0 {
			select {
			case r.active <- struct{}{}:
			default:
			}
			if _, werr := r.out.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil { // EIO: nobody holds the slave any more, pty(7)
			return
		}
	}
}

// write passes our stdin on. Its end becomes ^D, which is what a terminal has
// for end-of-file.
func (r *relay) write() {
	const endOfFile = 4 // VEOF of a new terminal, termios(3)
	_, err := io.Copy(r.master, os.Stdin)
	if err == nil {
		_, _ = r.master.Write([]byte{endOfFile})
	}
}

// finish waits for the rest of the output: until nobody holds the terminal,
// until idle passed with nothing, at most for max.
func (r *relay) finish(idle, max time.Duration) {
	limit := time.After(max)
	for {
		select {
		case <-r.done:
			return
		case <-r.active:
		case <-time.After(idle):
			return
		case <-limit:
			return
		}
	}
}

func (r *relay) close() {
	if r.raw {
		_ = r.ours.Restore(r.modes)
		r.raw = false
	}
	r.master.Close()
}
