package supervisor

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// Cancel ends a run and waits until it has ended, at most as long as asked;
// with NoWait only until the stop is durable. A run that has ended by then is
// left as it is, which is no error: Cancelled is false.
func (s *Supervisor) Cancel(ctx context.Context, ref, session string, req wire.Cancel) (*wire.Cancelled, error) {
	r, id, err := s.find(ref, session)
	if err != nil {
		return nil, err
	}
	mine, err := s.cut(r, id, req)
	if err != nil {
		return nil, err
	}
	if r != nil && !req.NoWait {
		wctx, cancel := bounded(ctx, millis(req.WaitResultMS))
		defer cancel()
		select {
		case <-r.over:
		case <-wctx.Done():
			if cause := context.Cause(wctx); !errors.Is(cause, errTimeout) {
				return nil, cause
			}
		}
	}
	rec, err := s.record(s.live(id), id)
	if err != nil {
		return nil, err
	}
	c := &wire.Cancelled{Record: rec, Stopping: !rec.Status.Terminal()}
	c.Cancelled = confirmed(rec, mine)
	return c, nil
}

// cut decides the stop that a request asks for and returns its id once it is
// durable, or that of the stop that the same request made before; "" when it
// stopped nothing. r is nil when the run has ended.
func (s *Supervisor) cut(r *run, id handles.ID, req wire.Cancel) (string, error) {
	if r != nil {
		d, err := cancelDecision(r, req)
		if err != nil {
			return "", err
		}
		st, cut := s.decide(r, d)
		if cut || st != nil && req.Idempotency != "" { // a repeat looks for the row, too
			if err := st.durable.Wait(); err != nil && cut {
				return "", fmt.Errorf("record the stop of %s: %w", id, err)
			}
		}
		if !cut && req.GraceMS != nil && *req.GraceMS == 0 {
			wake(r.hurry) // it is being ended: no more patience for this step
		}
		if cut {
			return st.id, nil
		}
	}
	if req.Idempotency == "" {
		return "", nil
	}
	return s.cutBefore(id, req.Idempotency)
}

// cutBefore is the id of the stop of a run that a request with that key made.
func (s *Supervisor) cutBefore(id handles.ID, key string) (string, error) {
	rows, err := s.journal.Entries(0, string(id), 0)
	if err != nil {
		return "", fmt.Errorf("look for an earlier stop of %s: %w", id, err)
	}
	for _, row := range rows {
		if row.Kind != "stop" {
			continue
		}
		var body struct{ Stop struct{ ID, Key string } }
		if err := unmarshal(row.Body, &body); err != nil {
			return "", fmt.Errorf("read entry %d of %s: %w", row.Seq, id, err)
		}
		if body.Stop.Key == key {
			return body.Stop.ID, nil
		}
	}
	return "", nil
}

// confirmed reports whether the record shows that this very stop ended the run
// and that nothing of it is left.
func confirmed(rec *handles.Record, stop string) bool {
	ended := rec.Status == handles.Killed || rec.Status == handles.Cancelled
	return ended && stop != "" && rec.Stop != nil && rec.Stop.ID == stop && rec.Stop.Answer == "took"
}

func cancelDecision(r *run, req wire.Cancel) (decision, error) {
	d := decision{kind: "cancel", cause: handles.CauseCancelled, by: "user", reason: req.Reason, key: req.Idempotency, ladder: ladder(r.spec)}
	switch req.By {
	case "", "user":
	case "host":
		d.by = "host"
	default:
		return d, invalid("by", "%q is neither user nor host", req.By)
	}
	if req.GraceMS != nil {
		if *req.GraceMS < 0 {
			return d, invalid("grace_ms", "%d is negative", *req.GraceMS)
		}
		d.ladder.Grace = millis(*req.GraceMS)
		if d.ladder.Grace == 0 {
			d.ladder.Grace = -time.Nanosecond // none at all
		}
	}
	if req.WaitResultMS < 0 {
		return d, invalid("wait_result_ms", "%d is negative", req.WaitResultMS)
	}
	if req.Signal != "" {
		sig, err := platform.ParseSignal(req.Signal)
		if err != nil {
			return d, invalid("signal", "%v", err)
		}
		d.ladder.Signal = sig
	}
	if d.reason == "" {
		d.reason = "cancel"
	}
	return d, nil
}

// Signal sends a signal to a run that is in front of its end.
func (s *Supervisor) Signal(_ context.Context, ref, session string, req wire.Signal) (*handles.Record, error) {
	sig, err := platform.ParseSignal(req.Signal)
	if err != nil {
		return nil, invalid("signal", "%v", err)
	}
	r, id, err := s.find(ref, session)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, endedError(id)
	}
	if err := r.signal(sig, req.Leader); err != nil {
		return nil, err
	}
	return s.record(s.live(id), id)
}

func (r *run) signal(sig syscall.Signal, leader bool) error {
	r.s.mu.Lock()
	g, phase := r.group, r.phase
	r.s.mu.Unlock()
	if g == nil || phase >= observed {
		return endedError(r.id)
	}
	send := g.Signal
	if leader {
		send = g.SignalLeader
	}
	switch err := send(sig); {
	case errors.Is(err, platform.ErrGone):
		return endedError(r.id)
	case err != nil:
		return &handles.Error{Code: handles.CodeForbidden, ID: string(r.id), Message: fmt.Sprintf("%s cannot be signalled: %v", r.id, err)}
	}
	return nil
}

func endedError(id handles.ID) error {
	return &handles.Error{Code: handles.CodeAlreadyEnded, ID: string(id), Message: string(id) + " has no running process"}
}

// Send writes to the stdin of a run that was started with stdin pipe, and
// closes it then if asked. It blocks as long as the command does not read.
func (s *Supervisor) Send(ctx context.Context, ref, session string, data []byte, closeAfter bool) (*handles.Record, error) {
	r, id, err := s.find(ref, session)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, endedError(id)
	}
	if err := r.send(ctx, data, closeAfter); err != nil {
		return nil, err
	}
	return s.record(s.live(id), id)
}

func (r *run) send(ctx context.Context, data []byte, closeAfter bool) error {
	r.inMu.Lock()
	defer r.inMu.Unlock()
	if r.stdin == nil {
		return &handles.Error{Code: handles.CodeConflict, ID: string(r.id), Message: "the stdin of " + string(r.id) + " is not open here", Hint: "start it with --stdin pipe"}
	}
	stop := context.AfterFunc(ctx, func() { _ = r.stdin.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := r.stdin.Write(data)
	if !stop() {
		_ = r.stdin.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		return &handles.Error{Code: handles.CodeConflict, ID: string(r.id), Message: fmt.Sprintf("write to the stdin of %s: %v", r.id, err)}
	}
	if closeAfter {
		if r.s.cfg.Keeper != nil { // first: what the keeper has left is open after a crash
			if err := r.s.cfg.Keeper.Trim(string(r.id), len(r.sources())+r.ready.extra()); err != nil {
				r.s.log.Error("close stdin at the keeper", "id", r.id, "err", err)
			}
		}
		r.stdin.Close()
		r.stdin = nil
	}
	return nil
}

// Restart ends a run and starts the same command again as a new one. A stop
// that somebody else decides meanwhile wins: then nothing is started. Two
// copies never run side by side.
func (s *Supervisor) Restart(ctx context.Context, ref, session string, req wire.Cancel) (*wire.Started, error) {
	r, id, err := s.find(ref, session)
	if err != nil {
		return nil, err
	}
	spec, err := s.specOf(r, id)
	if err != nil {
		return nil, err
	}
	spec.Idempotency, spec.Foreground, spec.Owner = "", false, nil
	if r != nil {
		if err := s.mayStartAgain(r, spec); err != nil { // before anything is ended
			return nil, err
		}
		if req.Reason == "" {
			req.Reason = "restart"
		}
		c, err := s.Cancel(ctx, string(id), session, req)
		if err != nil {
			return nil, err
		}
		if err := mayFollow(c); err != nil {
			return nil, err
		}
	}
	again, commit, err := s.admit(spec, string(id))
	if err != nil {
		return nil, err
	}
	if err := s.launch(again, commit); err != nil {
		return nil, err
	}
	return again.envelope(), nil
}

// mayStartAgain refuses a restart of a live run that would end it and then not be
// admitted, as far as that can be told.
func (s *Supervisor) mayStartAgain(r *run, spec wire.Start) error {
	missing := s.journal.Missing()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.accepts(missing); err != nil {
		return err
	}
	if err := r.sess.inScope(spec.Scope); err != nil {
		return err
	}
	if r.place && r == r.sess.parent { // what is in front is not owed when it is ended
		return nil
	}
	if needsPlace(spec) {
		return r.sess.place()
	}
	return nil
}

// mayFollow refuses a restart unless the run ended by itself or by this very
// request, and nothing of it is left: anybody else's stop wins, another
// restart's too, or there would be two copies.
func mayFollow(c *wire.Cancelled) error {
	rec := c.Record
	why := ""
	switch {
	case !rec.Status.Terminal():
		why = "did not end"
	case rec.Stop == nil || c.Cancelled:
		return nil
	case rec.Stop.Answer != "took":
		why = "was stopped, and something of it may be left"
	default:
		why = "was stopped by somebody else (" + rec.Stop.Reason + ")"
	}
	return &handles.Error{Code: handles.CodeConflict, ID: string(rec.HandleID), Message: string(rec.HandleID) + " " + why + ", so it was not started again"}
}

// specOf is the start of a run, for doing it again.
func (s *Supervisor) specOf(r *run, id handles.ID) (spec wire.Start, err error) {
	if r != nil {
		spec = r.spec
	} else {
		b, err := s.journal.Spec(string(id))
		if err != nil {
			return spec, err
		}
		if err := unmarshal(b, &spec); err != nil {
			return spec, fmt.Errorf("read start of %s: %w", id, err)
		}
	}
	if spec.NoStoreEnv {
		return spec, &handles.Error{Code: handles.CodeConflict, ID: string(id), Message: string(id) + " was started with --no-store-env and cannot be restarted"}
	}
	return spec, nil
}
