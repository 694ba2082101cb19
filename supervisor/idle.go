package supervisor

import (
	"context"
	"errors"
	"slices"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// Idle says from its state whether a session is quiet, and which of the handles
// that somebody expects have not reached their reader. With a wait it answers
// when nothing runs any more, or the time is over (negative = never).
func (s *Supervisor) Idle(ctx context.Context, name string, wait time.Duration, expect []handles.ID) (*wire.Idle, error) {
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = bounded(ctx, wait)
		defer cancel()
	}
	for {
		s.mu.Lock()
		sess, err := s.known(name)
		if err != nil {
			s.mu.Unlock()
			return nil, err
		}
		i, bell := sess.idle(), sess.bell
		s.mu.Unlock()
		if i.Idle || wait == 0 {
			return i, s.compare(sess, i, expect)
		}
		select {
		case <-bell:
		case <-s.life.Done():
			return nil, handles.ErrStarting
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errTimeout) {
				return nil, cause
			}
			i.TimedOut = true
			return i, s.compare(sess, i, expect)
		}
	}
}

// idle is what runs. A run counts until its end is durable. s.mu is held.
func (sess *session) idle() *wire.Idle {
	i := &wire.Idle{Pending: len(sess.owed), Missing: []handles.ID{}, Unexpected: []handles.ID{}}
	for _, r := range sess.live {
		if r == sess.parent {
			i.Runs++
		} else {
			i.Handles++
		}
	}
	i.Idle = i.Runs == 0 && i.Handles == 0
	return i
}

// compare sets what was expected against what the records say.
func (s *Supervisor) compare(sess *session, i *wire.Idle, expect []handles.ID) error {
	if len(expect) == 0 {
		return nil
	}
	for _, id := range expect {
		rec, err := s.record(s.live(id), id)
		switch {
		case errors.Is(err, handles.ErrNotFound):
			i.Missing = append(i.Missing, id)
		case err != nil:
			return err
		case rec.SessionID != sess.rec.Name, !rec.Status.Terminal(), rec.Delivery == handles.DeliveryPending, rec.Delivery == handles.DeliveryDropped:
			i.Missing = append(i.Missing, id)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range sess.owed {
		if !slices.Contains(expect, id) {
			i.Unexpected = append(i.Unexpected, id)
		}
	}
	slices.Sort(i.Unexpected)
	return nil
}
