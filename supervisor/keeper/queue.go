package keeper

import "sync"

// A queue passes values on in order without ever blocking who puts them. Who
// runs deliver closes out, if it is to be closed.
type queue[T any] struct {
	out  chan T
	quit chan struct{}

	mu     sync.Mutex
	items  []T
	last   bool          // no more will be put
	filled chan struct{} // has one element when there are items
}

func newQueue[T any]() *queue[T] {
	return &queue[T]{out: make(chan T), quit: make(chan struct{}), filled: make(chan struct{}, 1)}
}

func (q *queue[T]) put(v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(q.items, v)
	select {
	case q.filled <- struct{}{}:
	default: // it is known
	}
}

// finish makes deliver end after what was put so far.
func (q *queue[T]) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last = true
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// deliver runs until stop, or finish and then the last item was taken.
func (q *queue[T]) deliver() {
	for {
		select {
		case <-q.filled:
		case <-q.quit:
			return
		}
		q.mu.Lock()
		items, last := q.items, q.last
		q.items = nil
		q.mu.Unlock()
		for _, v := range items {
			select {
			case q.out <- v:
			case <-q.quit:
				return
			}
		}
		if last {
			return
		}
	}
}

func (q *queue[T]) stop() { close(q.quit) }
