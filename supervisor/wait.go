package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/supervisor/wire"
)

// errTimeout is the cause of a context that ended because the caller's own
// timeout did, as against a caller that went away.
var errTimeout = errors.New("the observation timed out")

func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d, errTimeout)
}

// Wait answers when a run has ended and that is durable, or when the timeout
// is over, which cancels nothing. A negative timeout does not wait at all, 0
// waits for ever.
func (s *Supervisor) Wait(ctx context.Context, ref, session string, timeout time.Duration) (*wire.Waited, error) {
	r, id, err := s.find(ref, session)
	if err != nil {
		return nil, err
	}
	if r != nil && timeout >= 0 {
		ctx, cancel := bounded(ctx, timeout)
		defer cancel()
		select {
		case <-r.over:
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errTimeout) {
				return nil, cause
			}
		}
	}
	rec, err := s.outcome(r, id)
	if err != nil {
		return nil, err
	}
	w := &wire.Waited{Status: waitStatus(rec.Status), Record: rec}
	switch {
	case w.Status == wire.WaitPending && timeout >= 0:
		w.Status, w.TimeoutPhase = wire.WaitTimeout, string(rec.Status)
	}
	return w, nil
}

// WaitTake is Wait that takes the end out of the inbox of the session that it is
// owed to, if it is and no other living reader has it: Batch is to be
// acknowledged then.
func (s *Supervisor) WaitTake(ctx context.Context, ref, session string, timeout time.Duration, who Caller) (*wire.Waited, error) {
	r, id, err := s.find(ref, session)
	if err != nil {
		return nil, err
	}
	release := s.claim(r, who)
	w, err := s.Wait(ctx, string(id), session, timeout)
	release()
	if err != nil || !w.Record.Status.Terminal() || !awaited(w.Record) {
		return w, err
	}
	if w.Batch, w.Redelivered, err = s.takeOne(w.Record.HandleID, w.Record.SessionID, who); err != nil {
		return nil, err
	}
	return w, nil
}

func waitStatus(s handles.Status) string {
	switch {
	case s == handles.Completed:
		return wire.WaitOK
	case s.Terminal():
		return wire.WaitError
	}
	return wire.WaitPending
}

func (s *Supervisor) live(id handles.ID) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id]
}

// outcome is the record of a run that was waited for; r is nil if it had ended
// before. That of one that ended and is owed to nobody does not change any more:
// the journal says the same.
func (s *Supervisor) outcome(r *run, id handles.ID) (*handles.Record, error) {
	if r != nil {
		s.mu.Lock()
		rec, final := r.rec, r.phase == ended && r.rec.Status.Terminal() && !awaited(&r.rec)
		s.mu.Unlock()
		if final {
			return &rec, nil
		}
	}
	return s.record(s.live(id), id)
}

// inFront waits at most d for the end of a run that was started in front, and
// answers with what there is.
func (s *Supervisor) inFront(ctx context.Context, r *run, id handles.ID, d time.Duration, who *Caller) (*wire.Started, error) {
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	if r != nil { // else it has ended
		select {
		case <-r.over:
		case <-timeout.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	rec, err := s.outcome(r, id)
	if err != nil {
		return nil, err
	}
	s.inline(rec, id)
	a := started(*rec, s.dir(id))
	a.Record = rec
	if who != nil && rec.Status.Terminal() && awaited(rec) {
		a.Batch, a.Redelivered, err = s.takeOne(id, rec.SessionID, *who)
	}
	return a, err
}

// WaitOutput answers when a pattern was written, when the run has ended
// without, or when the timeout is over. A match wins over an end.
func (s *Supervisor) WaitOutput(ctx context.Context, ref, session string, req wire.WaitOutput) (*wire.OutputWaited, error) {
	r, id, err := s.find(ref, session)
	if err != nil {
		return nil, err
	}
	q, err := query(req)
	if err != nil {
		return nil, err
	}
	log, done, err := s.output(ctx, r, id)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := bounded(ctx, millis(req.TimeoutMS))
	defer cancel()
	found, err := log.Match(ctx, q)
	w := &wire.OutputWaited{}
	switch {
	case err == nil:
		w.Status, w.Source, w.From, w.To, w.Text = wire.Matched, found.Source.String(), found.From, found.To, found.Text
	case errors.Is(err, capture.ErrEndedBeforeMatch):
		w.Status = wire.Exited
		if r != nil { // its output has ended: so will it be, at once
			select {
			case <-r.over:
			case <-ctx.Done():
			}
		}
	case errors.Is(err, errTimeout):
		w.Status = wire.TimedOut
	default:
		return nil, err
	}
	w.Record, err = s.record(s.live(id), id)
	return w, err
}

func query(req wire.WaitOutput) (capture.Query, error) {
	q := capture.Query{Pattern: req.Pattern, Regex: req.Regex, Raw: req.Raw}
	if req.Pattern == "" {
		return q, invalid("pattern", "is empty")
	}
	if req.From < 0 {
		return q, invalid("from", "%d is negative", req.From)
	}
	q.From = map[capture.Source]int64{capture.Stdout: req.From, capture.Stderr: req.From}
	switch req.Source {
	case "":
	case "stdout":
		q.Sources = []capture.Source{capture.Stdout}
	case "stderr":
		q.Sources = []capture.Source{capture.Stderr}
	default:
		return q, invalid("source", "%q is neither stdout nor stderr", req.Source)
	}
	if req.Regex {
		if _, err := regexp.Compile(req.Pattern); err != nil {
			return q, invalid("pattern", "%v", err)
		}
	}
	return q, nil
}

// output opens the log of a run for reading; of one that is being started it
// waits for it. The caller calls done.
func (s *Supervisor) output(ctx context.Context, r *run, id handles.ID) (*capture.Log, func(), error) {
	for waits := r != nil; waits; {
		s.mu.Lock()
		log, bell := r.log, r.bell
		waits = r.phase == admitted
		s.mu.Unlock()
		if log != nil {
			return log, func() {}, nil
		}
		if !waits {
			break
		}
		select {
		case <-bell:
		case <-r.over: // it was never started
			waits = false
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-s.life.Done():
			return nil, nil, handles.ErrStarting
		}
	}
	log, err := capture.Reopen(s.dir(id))
	if errors.Is(err, fs.ErrNotExist) && s.neverCaptured(id) {
		if log, err = capture.Open(capture.Config{}); err == nil {
			err = log.Close() // that nothing was written is the whole of it
		}
	}
	if err != nil {
		return nil, nil, &handles.Error{Code: handles.CodeNotFound, ID: string(id), Message: "the output of " + string(id) + " is not there any more: " + err.Error()}
	}
	return log, func() { log.Close() }, nil
}

// neverCaptured reports whether a run ended before it had any streams.
func (s *Supervisor) neverCaptured(id handles.ID) bool {
	rec, err := s.record(s.live(id), id)
	return err == nil && rec.Status.Terminal() && rec.PID == 0 && rec.Output == nil
}
