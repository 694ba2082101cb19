package capture

// put adds p by writing, and never fails: what the spool does not take is
// counted and, for a moment, readable from memory. s.wmu is held.
func (s *Stream) put(p []byte) {
	for len(p) > 0 {
		n, err := s.begin(int64(len(p)))
		if err == nil {
			var k int
			k, err = s.w.f.WriteAt(p[:n], s.total.Load()-s.w.seg.start)
			if k > 0 {
				s.publish(int64(k))
				p = p[k:]
			}
			if err != nil {
				err = s.fail(err)
			}
		}
		if err != nil {
			s.count(p)
			return
		}
	}
}

// fail marks the spool as broken by err and returns errBroken.
func (s *Stream) fail(err error) error {
	w := &s.w
	w.broken, w.gap, w.why = true, s.total.Load(), lossOf(err)
	w.retry = s.log.now() + retryAfter
	s.rest()
	s.mu.Lock()
	s.tail = &tail{from: w.gap}
	w.before, s.missing = s.missing, w.why.String()
	s.mu.Unlock()
	return errBroken
}

// count takes bytes that the spool cannot have: they are kept in memory until
// newer ones take their place. It waits for matchers that would miss them.
func (s *Stream) count(p []byte) {
	for len(p) > 0 {
		n := min(len(p), tailSize/4)
		s.awaitScans(n)
		s.mu.Lock()
		s.tail.add(p[:n])
		s.addHole(Range{s.w.gap, s.tail.from}) // at once: a reader must not look in the spool for what was pushed out
		s.mu.Unlock()
		s.publish(int64(n))
		p = p[n:]
	}
}

// awaitScans waits until n more bytes do not push any out of the tail that a
// matcher has still to see. Matchers never wait while there is something to see.
func (s *Stream) awaitScans(n int) {
	for {
		s.mu.Lock()
		oldest := s.tail.from + int64(max(len(s.tail.buf)+n-tailSize, 0))
		behind := false
		for sc := range s.scans {
			behind = behind || sc.pos < oldest
		}
		if !behind {
			s.mu.Unlock()
			return
		}
		room := s.moved()
		s.ring()
		s.mu.Unlock()
		<-room
	}
}

// moved returns a channel that is closed when a reader that holds the pump up
// has gone on. s.mu is held.
func (s *Stream) moved() <-chan struct{} {
	if s.room == nil {
		s.room = make(chan struct{})
	}
	return s.room
}

// goOn wakes a pump that waits for readers. s.mu is held.
func (s *Stream) goOn() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// mend tries a broken spool again with the bytes in memory. s.wmu is held.
func (s *Stream) mend() error {
	w := &s.w
	w.retry = s.log.now() + retryAfter
	err := s.ready()
	if err == nil { // tail is only changed by a holder of wmu
		_, err = w.f.WriteAt(s.tail.buf, s.tail.from-w.seg.start)
	}
	if err != nil {
		s.rest()
		return errBroken
	}
	gap := Range{w.gap, s.tail.from}
	if gap.Len() > 0 {
		s.log.index.gap(s.src, gap, w.why)
	}
	s.mu.Lock()
	s.tail = nil
	if gap.Len() == 0 {
		s.missing = w.before
	}
	s.mu.Unlock()
	w.broken = false
	return nil
}
