package pgroup

import "sync"

// An asked answers many who ask the same at the same time by asking once for all
// of them. An answer was begun after the question was put: it is never an old one.
// When thousands of commands are ended at once, the list of all children is read
// some dozens of times instead of thousands.
type asked[T any] struct {
	mu   sync.Mutex
	next *answer[T] // of those who wait for the one that is being found to be done
	turn sync.Mutex // held while one is being found
}

type answer[T any] struct {
	found chan struct{}
	v     T
}

// ask calls find, or waits for a call of it by another that begins from now on.
// What it returns is for reading only.
func (s *asked[T]) ask(find func() T) T {
	s.mu.Lock()
	a := s.next
	mine := a == nil
	if mine {
		a = &answer[T]{found: make(chan struct{})}
		s.next = a
	}
	s.mu.Unlock()
	if mine {
		s.turn.Lock()
		s.mu.Lock()
		s.next = nil // who comes now is too late for this one
		s.mu.Unlock()
		a.v = find()
		s.turn.Unlock()
		close(a.found)
	}
	<-a.found
	return a.v
}
