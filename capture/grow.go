package capture

import "sync/atomic"

const (
	pipeSmall = 64 << 10 // what a pipe has from the start
	pipeLarge = 1 << 20  // what a busy one gets, /proc/sys/fs/pipe-max-size for most
)

// A Grow is the number of pipes that may be enlarged at one time, shared by
// all logs that are given it. A user's pipes share a limit of 64 MiB, past
// which every new pipe of that user shrinks.
type Grow struct{ left atomic.Int64 }

// NewGrow returns a budget for n pipes of 1 MiB.
func NewGrow(n int) *Grow {
	g := &Grow{}
	g.left.Store(int64(n))
	return g
}

// take reports whether one more may be enlarged; give it back with put.
func (g *Grow) take() bool {
	if g.left.Add(-1) >= 0 {
		return true
	}
	g.left.Add(1)
	return false
}

func (g *Grow) put() { g.left.Add(1) }
