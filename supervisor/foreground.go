package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// Run runs a command as the parent run of its session, tells started of its
// start and returns its record when it has ended. It ends with its caller: when
// the context ends, or the process that asked does. handles.ErrBusy while the
// session has another one. With the idempotency key of a run that goes on, the
// caller holds that one. With BackgroundMS a run that has not ended by then goes
// on as a handle of its session, and the record says so.
func (s *Supervisor) Run(ctx context.Context, req wire.Start, who Caller, started func(*wire.Started) error) (*handles.Record, error) {
	req.Foreground, req.Owner = true, nil
	if p := who.Process; p.PID != 0 && p.PID != pid() {
		req.Owner = &handles.Exec{BootID: p.BootID, PID: p.PID, StartTicks: p.StartTicks}
	}
	a, err := s.start(ctx, req, nil)
	if err != nil {
		return nil, err
	}
	r := s.live(a.HandleID)
	if r != nil {
		s.hold(r)
	}
	if err := started(a); err != nil && r != nil {
		s.ownerGone(r, "the caller's connection ended")
	}
	if r != nil {
		if err := s.untilOver(ctx, r); err != nil {
			return nil, err
		}
	}
	rec, err := s.record(s.live(a.HandleID), a.HandleID)
	if err == nil && req.Inline {
		s.inline(rec, a.HandleID)
	}
	return rec, err
}

// untilOver waits until a foreground run has ended, or was released.
func (s *Supervisor) untilOver(ctx context.Context, r *run) error {
	var leave <-chan time.Time
	if ms := r.spec.BackgroundMS; ms != nil {
		rec, _ := r.state()
		timer := time.NewTimer(time.Until(rec.StartedAt.Add(millis(*ms))))
		defer timer.Stop()
		leave = timer.C
	}
	for {
		select {
		case <-r.over:
			return nil
		case <-s.life.Done():
			return handles.ErrStarting // the successor goes on with it
		case <-leave:
			if released, err := s.release(r); released || err != nil {
				return err
			}
		case <-ctx.Done():
			if s.letGo(r) {
				s.ownerGone(r, "the caller went away: "+context.Cause(ctx).Error())
			}
			return context.Cause(ctx)
		}
	}
}

// release makes a foreground run a handle, whose place in the inbox was kept
// since its admission. One that is ending already stays what it is.
func (s *Supervisor) release(r *run) (bool, error) {
	s.mu.Lock()
	if !r.front() { // before a restart of the supervisor
		s.mu.Unlock()
		return true, nil
	}
	if r.phase >= observed || r.stop != nil {
		s.mu.Unlock()
		return false, nil
	}
	r.rec.Kind, r.rec.Lifetime, r.rec.Lease = "handle", "session", r.spec.Lease
	if r.spec.Lease == LeaseAwaited {
		r.rec.Delivery = handles.DeliveryPending
	}
	commit := s.write(r, "released", nil)
	if r.sess.parent == r {
		r.sess.parent, r.sess.armed = nil, true
	}
	s.announce(r.sess)
	r.sess.changed()
	r.ring()
	s.mu.Unlock()
	if err := commit.Wait(); err != nil {
		return true, fmt.Errorf("record that %s goes on in the background: %w", r.id, err)
	}
	return true, nil
}

// front reports whether it is the parent run of its session. s.mu is held.
func (r *run) front() bool { return r.rec.Kind == kindRun }

const kindRun = "run"

// hold counts who waits for a foreground run.
func (s *Supervisor) hold(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.holders++
}

// letGo reports whether nobody holds the run any more.
func (s *Supervisor) letGo(r *run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.holders--
	return r.holders == 0
}

func (s *Supervisor) ownerGone(r *run, why string) {
	if s.life.Err() != nil {
		return
	}
	s.decide(r, decision{kind: "owner_gone", cause: handles.CauseOwnerGone, by: "host", reason: why})
}

// watchOwner ends a foreground run when the process of its caller ends.
func (s *Supervisor) watchOwner(r *run) {
	o := r.spec.Owner
	s.mu.Lock()
	front := r.front()
	s.mu.Unlock()
	if !front || o == nil {
		return
	}
	gone := fmt.Sprintf("its caller, process %d, ended", o.PID)
	w, err := platform.WatchProcess(identity(o))
	switch {
	case errors.Is(err, platform.ErrGone):
		s.ownerGone(r, gone)
		return
	case err != nil:
		s.log.Error("watch the caller of a run", "id", r.id, "pid", o.PID, "err", err)
		return
	}
	go func() { // ends with the caller, the run, or this process
		defer w.Close()
		select {
		case <-w.Done():
			s.ownerGone(r, gone)
		case <-r.over:
		case <-s.life.Done():
		}
	}()
}

// attachGrace is how long an attached session waits to be attached again after
// the supervisor was replaced, while the process of its holder lives.
const attachGrace = 30 * time.Second

// Attach opens a session that ends when the context does, which stands for the
// connection that asked. It tells opened of the session and returns then.
func (s *Supervisor) Attach(ctx context.Context, req wire.OpenSession, who Caller, opened func(*handles.Session) error) error {
	if req.BindPID == 0 && who.Process.PID != 0 && who.Process.PID != pid() && platform.SamePIDs(who.Process.PID) {
		req.BindPID = who.Process.PID // also across a restart of the supervisor
	}
	v, err := s.openSession(req, who, true)
	if err != nil {
		return err
	}
	s.mu.Lock()
	sess := s.sessions[v.Name]
	sess.attached++
	s.mu.Unlock()
	if err := opened(v); err == nil && !s.attachedUntil(ctx, sess) {
		return handles.ErrStarting
	}
	s.mu.Lock()
	sess.attached--
	last := sess.attached == 0 && s.sessions[v.Name] == sess && !s.draining // a daemon that stops ends its commands, and owes their ends (D3)
	s.mu.Unlock()
	if last && s.life.Err() == nil {
		go s.endSession(context.Background(), sess, detached) // bounded by the ladders; nobody waits
	}
	return nil
}

// attachedUntil waits until the connection ends, or the session is closed by
// somebody else; false = this process goes away.
func (s *Supervisor) attachedUntil(ctx context.Context, sess *session) bool {
	for {
		s.mu.Lock()
		bell, closed := sess.bell, sess.closed()
		s.mu.Unlock()
		if closed {
			return true
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return true
		case <-s.life.Done():
			return false
		}
	}
}

var detached = ending{kind: "session_close", by: "host", why: "the connection that it was attached to ended", closes: true}

// awaitAttach closes an attached session that nobody attaches to again in time
// after this supervisor took it up.
func (s *Supervisor) awaitAttach(sess *session) {
	timer := time.NewTimer(attachGrace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.life.Done():
		return
	}
	s.mu.Lock()
	alone := sess.attached == 0 && !sess.closed()
	s.mu.Unlock()
	if alone {
		_, _ = s.endSession(context.Background(), sess, detached)
	}
}
