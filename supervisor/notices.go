package supervisor

import (
	"context"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/supervisor/wire"
)

// notify adds an observation to the session's notices. s.mu is held.
func (s *Supervisor) notify(sess *session, n wire.Notice) {
	n.At, n.Session = time.Now().UTC(), sess.rec.Name
	n.Seq = sess.base + sess.notices.Next() + 1
	sess.notices.Put(n)
}

// notifyRun is notify of a run as it is now. s.mu is held.
func (s *Supervisor) notifyRun(sess *session, kind string, rec *handles.Record) {
	s.notify(sess, wire.Notice{
		Kind: kind, HandleID: rec.HandleID, RunKind: rec.Kind, Name: rec.Name, Status: rec.Status, Cause: rec.Cause,
		Error: rec.Error, ExitCode: rec.ExitCode, Signal: rec.Signal,
	})
}

// announce says once an idle period that ends are owed: not while a parent run
// is active, whose end is the time for it, and again only after a reader came
// or a parent run ended. s.mu is held.
func (s *Supervisor) announce(sess *session) {
	if !sess.armed || sess.parent != nil || len(sess.owed) == 0 || sess.closed() {
		return
	}
	sess.armed = false
	s.notify(sess, wire.Notice{Kind: wire.NoticeReady, Count: int64(len(sess.owed))})
}

// Notices gives what happens in a session to each, as it happens: first that it
// is subscribed, then what came after since (0 = only what is new), last that
// the session is closed. What a slow reader missed is counted.
func (s *Supervisor) Notices(ctx context.Context, name string, since int64, each func(wire.Notice) error) error {
	s.mu.Lock()
	sess, err := s.known(name)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	at := sess.notices.Next()
	first := wire.Notice{Kind: wire.NoticeSubscribed, Seq: sess.base + at, At: time.Now().UTC(), Session: sess.rec.Name, Generation: s.fence}
	if since > 0 {
		at = min(max(since-sess.base, 0), at)
	}
	ring := sess.notices
	s.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(handles.ErrStarting) })()
	if err := each(first); err != nil {
		return err
	}
	rd := ring.Read(at)
	for {
		n, missed, err := rd.Next(ctx)
		if missed > 0 {
			if err := each(wire.Notice{Kind: wire.NoticeLagged, Session: name, Count: missed}); err != nil {
				return err
			}
		}
		if handles.IsEnd(err) {
			return nil
		}
		if err == nil {
			err = each(n)
		}
		if err != nil {
			return err
		}
	}
}

// watchMatches tells once of each pattern that is written by a run.
func (s *Supervisor) watchMatches(r *run) {
	for _, pattern := range r.spec.NotifyMatch {
		s.owners.Add(1)
		go func() { // ends with the run's output, or with this process
			defer s.owners.Done()
			found, err := r.log.Match(s.life, capture.Query{Pattern: pattern})
			if err != nil {
				return // it ended without
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.notify(r.sess, wire.Notice{
				Kind: wire.NoticeMatched, HandleID: r.id, RunKind: r.rec.Kind, Name: r.rec.Name, Status: r.rec.Status,
				Pattern: pattern, Source: found.Source.String(), From: found.From, To: found.To,
			})
		}()
	}
}

// Events gives the events of a run to each, as they happen, until its end. The
// receiver, of which there is one, decides what counts as dropped; everybody
// else observes.
func (s *Supervisor) Events(ctx context.Context, ref, session string, take bool, each func(wire.Event) error) error {
	r, id, err := s.find(ref, session)
	if err != nil {
		return err
	}
	if r == nil {
		return endedError(id)
	}
	rd := r.events.Read(0)
	if take {
		if rd, err = r.events.Take(); err != nil {
			return &handles.Error{Code: handles.CodeTaken, ID: string(id), Message: "the events of " + string(id) + " have a receiver already", Hint: "read them without --take, or the journal"}
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(handles.ErrStarting) })()
	for {
		e, missed, err := rd.Next(ctx)
		if missed > 0 {
			if err := each(wire.Event{Kind: wire.EventOverflow, Dropped: missed}); err != nil {
				return err
			}
		}
		if handles.IsEnd(err) {
			return nil
		}
		if err == nil {
			err = each(e)
		}
		if err != nil {
			return err
		}
	}
}

// event adds to what is told of the run.
func (r *run) event(e wire.Event) {
	r.evMu.Lock()
	defer r.evMu.Unlock()
	e.At = time.Now().UTC()
	if e.Kind == wire.EventOutput && !r.told { // the spawn is a moment ago
		r.early = append(r.early, e)
		return
	}
	r.told = true
	for _, e := range append([]wire.Event{e}, r.early...) {
		e.Seq = r.events.Next() + 1
		r.events.Put(e)
	}
	r.early = nil
}

// captured is told by the capture of each piece of output; it must not wait.
func (r *run) captured(src capture.Source, from, to int64) {
	r.event(wire.Event{Kind: wire.EventOutput, Source: src.String(), From: from, To: to})
}
