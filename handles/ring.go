package handles

import (
	"context"
	"errors"
	"io"
	"sync"
)

// ErrTaken says that the receiver of a ring was taken before.
var ErrTaken = &Error{Code: CodeTaken}

// A Ring keeps the newest values for whoever observes them. It never makes its
// writer wait: a reader that is too slow misses the oldest, and is told how many.
type Ring[T any] struct {
	mu      sync.Mutex
	buf     []T   // grows up to max, then is used round
	max     int   //
	first   int64 // ordinal of the oldest value kept, from 0
	next    int64 // ordinal of the next
	held    bool  // the place of next is kept free: it counts as written
	taken   bool  // the receiver was given out
	mark    int64 // how far the receiver has read
	dropped int64 // values gone before the receiver read them
	closed  bool
	bell    chan struct{} // closed when there is more; nil: nobody waits
}

// NewRing makes a ring of at least one place.
func NewRing[T any](n int) *Ring[T] { return &Ring[T]{max: max(n, 1)} }

// Put adds a value and never waits. After Close it does nothing.
func (r *Ring[T]) Put(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.room()
	r.held = false
	if len(r.buf) < r.max {
		r.buf = append(r.buf, v)
	} else {
		r.buf[r.next%int64(r.max)] = v
	}
	r.next++
	r.ring()
}

// Reserve keeps a place free for the next Put, so that what Counts says then
// stays true. It returns the counts.
func (r *Ring[T]) Reserve() (total, dropped int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.room()
	r.held = true
	return r.next + 1, r.dropped
}

// room gives up the oldest value if all places are used. r.mu is held.
func (r *Ring[T]) room() {
	if r.held || r.next-r.first < int64(r.max) {
		return
	}
	var none T
	r.buf[r.first%int64(r.max)] = none
	if r.first >= r.mark {
		r.dropped++
	}
	r.first++
}

// Counts are all values that were put, and those gone before the receiver read
// them; without a receiver, those gone.
func (r *Ring[T]) Counts() (total, dropped int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	total = r.next
	if r.held {
		total++
	}
	return total, r.dropped
}

// Close ends the ring: readers get what is left, then io.EOF.
func (r *Ring[T]) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.ring()
}

// ring wakes who waits. r.mu is held.
func (r *Ring[T]) ring() {
	if r.bell != nil {
		close(r.bell)
		r.bell = nil
	}
}

// Next is the ordinal that the next value gets.
func (r *Ring[T]) Next() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// Take gives the one receiver, whose reading decides what counts as dropped;
// ErrTaken when it was given before. It begins with the first value there was.
func (r *Ring[T]) Take() (*RingReader[T], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken {
		return nil, ErrTaken
	}
	r.taken = true
	return &RingReader[T]{r: r, receiver: true}, nil
}

// Read gives an observer that begins with the value of that ordinal.
func (r *Ring[T]) Read(from int64) *RingReader[T] { return &RingReader[T]{r: r, at: max(from, 0)} }

// A RingReader reads a ring at its own pace. It belongs to one goroutine.
type RingReader[T any] struct {
	r        *Ring[T]
	at       int64
	receiver bool
}

// Next waits for the next value. missed values were gone before it. At the end
// of a closed ring the error is io.EOF, missed counts there too; otherwise it
// is the context's cause.
func (rd *RingReader[T]) Next(ctx context.Context) (v T, missed int64, err error) {
	for {
		r := rd.r
		r.mu.Lock()
		if rd.at < r.first {
			missed += r.first - rd.at
			rd.at = r.first
		}
		if rd.at < r.next {
			v = r.buf[rd.at%int64(r.max)]
			rd.advance()
			r.mu.Unlock()
			return v, missed, nil
		}
		if r.closed {
			rd.at = r.next
			r.mu.Unlock()
			return v, missed, io.EOF
		}
		if r.bell == nil {
			r.bell = make(chan struct{})
		}
		bell := r.bell
		r.mu.Unlock()
		select {
		case <-bell:
		case <-ctx.Done():
			return v, missed, context.Cause(ctx)
		}
	}
}

// advance moves on by one. r.mu is held.
func (rd *RingReader[T]) advance() {
	rd.at++
	if rd.receiver {
		rd.r.mark = max(rd.r.mark, rd.at)
	}
}

// At is the ordinal of the next value that will be read.
func (rd *RingReader[T]) At() int64 { return rd.at }

// IsEnd reports whether err is the regular end of a ring.
func IsEnd(err error) bool { return errors.Is(err, io.EOF) }
