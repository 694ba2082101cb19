package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// A stdinFeed carries input to the command's stdin: by a FIFO, so that no byte of it
// is in the hands of a daemon that may be killed. nil: there is none.
type stdinFeed struct {
	fifo *platform.FIFO
	from io.Reader
}

// openFeed opens the way to the command's stdin and puts it into the request.
func (f *front) openFeed() (*stdinFeed, error) {
	if f.input == nil {
		return nil, nil
	}
	fifo, err := platform.MakeFIFO()
	if err != nil {
		return nil, unusable("%s: pass stdin on: %v", f.r.verb, err)
	}
	f.req.Stdin = fifo.Path
	return &stdinFeed{fifo: fifo, from: f.input}, nil
}

// begin passes on what is read, once the daemon has opened the other end.
func (d *stdinFeed) begin() {
	if d == nil {
		return
	}
	w, err := d.fifo.Writer()
	d.fifo.Close() // its name has done its work
	if err != nil {
		return // nobody reads: the command has ended already
	}
	go func() { // ends with the input, with the command's stdin, or with this process
		defer w.Close()
		_, _ = io.Copy(struct{ io.Writer }{w}, d.from) // byte for byte, at the pace of the command
	}()
}

func (d *stdinFeed) close() {
	if d != nil {
		d.fifo.Close()
	}
}

// copies pass the command's output through, at the pace of whoever reads ours.
type copies struct {
	f      *front
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
	broken chan string  // a stream of ours that nobody reads any more
	lost   atomic.Int64 // bytes that were not kept until they could be passed on
	mu     sync.Mutex
	errs   error
}

func newCopies(f *front) *copies {
	k := &copies{f: f, broken: make(chan string, 2)}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

func (k *copies) begin(id handles.ID, merged bool) {
	k.pass(id, "stdout", k.f.out)
	if !merged {
		k.pass(id, "stderr", k.f.errOut)
	}
}

func (k *copies) pass(id handles.ID, source string, to *os.File) {
	if to == nil {
		return
	}
	k.all.Go(func() { // ends with the stream or by cancel; finish waits for it
		q := wire.OutputQuery{Source: source, Follow: true}
		err := k.f.r.Output(k.ctx, string(id), q, to, nil, func(gap handles.Range) { k.lost.Add(gap.To - gap.From) })
		switch {
		case err == nil, k.ctx.Err() != nil:
		case errors.Is(err, syscall.EPIPE):
			k.broken <- source // room for both
		default:
			k.mu.Lock()
			defer k.mu.Unlock()
			k.errs = errors.Join(k.errs, err)
		}
	})
}

// finish waits for whoever reads our output; not for long if the command was
// stopped. A signal that asks us to stop ends that. It reports whether all was
// passed on.
func (k *copies) finish(signals <-chan os.Signal, stopped bool) bool {
	passed := make(chan struct{})
	go func() { // ends with the copies
		k.all.Wait()
		close(passed)
	}()
	var enough <-chan time.Time
	if stopped {
		enough = time.After(drainMax)
	}
	for {
		select {
		case <-passed:
			return true
		case <-enough:
			k.cancel()
			return false
		case sig := <-signals:
			if platform.ClassOf(sig.(syscall.Signal)) == platform.AsksStop {
				k.cancel()
				return false
			}
		}
	}
}

func (k *copies) err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.errs
}
