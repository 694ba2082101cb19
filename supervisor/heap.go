package supervisor

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

// After so many starts, and then so long without another, the memory that they
// took beside what stays is given back: the collector alone lets the process
// keep twice what lives.
const (
	heapStarts = 256
	heapQuiet  = time.Second
)

// A heapRest gives memory back when it has become quiet.
type heapRest struct {
	starts atomic.Int64
	timer  atomic.Pointer[time.Timer] // nil before the first time
}

// settleHeap counts one start.
func (s *Supervisor) settleHeap() {
	if s.heap.starts.Add(1) < heapStarts {
		return
	}
	if t := s.heap.timer.Load(); t != nil {
		t.Reset(heapQuiet)
		return
	}
	t := time.AfterFunc(heapQuiet, func() {
		s.heap.starts.Store(0)
		debug.FreeOSMemory()
	})
	if !s.heap.timer.CompareAndSwap(nil, t) {
		t.Stop()
	}
}
