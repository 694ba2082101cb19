package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// An ending is how the work of a session is ended.
type ending struct {
	kind   string // of the stops: session_close, evict, shutdown
	by     string // user, host
	why    string
	grace  *time.Duration // nil = each run's own
	closes bool           // the session takes no new work afterwards
	resets bool           // it is its next generation afterwards
	idle   bool           // refuse while something runs or is owed
	polite bool           // refuse while a parent run is active
}

func endingOf(req wire.EndSession, kind, why string) (ending, error) {
	e := ending{kind: kind, by: "user", why: why, idle: req.RequireIdle}
	switch req.By {
	case "", "user":
	case "host":
		e.by = "host"
	default:
		return e, invalid("by", "%q is neither user nor host", req.By)
	}
	if req.Reason != "" {
		e.why = req.Reason
	}
	if req.GraceMS != nil {
		if *req.GraceMS < 0 {
			return e, invalid("grace_ms", "%d is negative", *req.GraceMS)
		}
		g := millis(*req.GraceMS)
		e.grace = &g
	}
	return e, nil
}

// CloseSession ends all work of a session, drops what is owed to it, and closes
// it. It returns when nothing is left, or says what is. Closing a closed one
// does nothing.
func (s *Supervisor) CloseSession(ctx context.Context, name string, req wire.EndSession, who Caller) (*wire.SessionReport, error) {
	e, err := endingOf(req, "session_close", "the session was closed")
	e.closes = true
	if err != nil {
		return nil, err
	}
	return s.endNamed(ctx, name, e, who)
}

// ClearSession ends all work of a session and drops what is owed to it.
func (s *Supervisor) ClearSession(ctx context.Context, name string, req wire.EndSession, who Caller) (*wire.SessionReport, error) {
	e, err := endingOf(req, "session_close", "the session was cleared")
	if err != nil {
		return nil, err
	}
	return s.endNamed(ctx, name, e, who)
}

// ResetSession is ClearSession, and the session begins anew: scopes and tokens
// of before are void.
func (s *Supervisor) ResetSession(ctx context.Context, name string, req wire.EndSession, who Caller) (*wire.SessionReport, error) {
	e, err := endingOf(req, "session_close", "the session was reset")
	e.resets = true
	if err != nil {
		return nil, err
	}
	return s.endNamed(ctx, name, e, who)
}

// ShutdownSession is CloseSession for a host that has finished: it refuses with
// handles.ErrBusy while a parent run is active, and is over in the grace and a
// moment; what was not ended by then is in the report, whose Error says so.
func (s *Supervisor) ShutdownSession(ctx context.Context, name string, req wire.EndSession, who Caller) (*wire.SessionReport, error) {
	if req.By == "" {
		req.By = "host"
	}
	e, err := endingOf(req, "shutdown", "the session is shut down")
	e.closes, e.polite = true, true
	if err != nil {
		return nil, err
	}
	return s.endNamed(ctx, name, e, who)
}

// DeleteSession closes a session and forgets it; records of its handles stay.
func (s *Supervisor) DeleteSession(ctx context.Context, name string, req wire.EndSession, who Caller) (*wire.SessionReport, error) {
	rep, err := s.CloseSession(ctx, name, req, who)
	if err != nil || len(rep.StillActive) > 0 || name == DefaultSession {
		return rep, err
	}
	s.mu.Lock()
	delete(s.sessions, name)
	s.mu.Unlock()
	return rep, s.journal.ForgetSession(name)
}

func (s *Supervisor) endNamed(ctx context.Context, name string, e ending, who Caller) (*wire.SessionReport, error) {
	s.mu.Lock()
	sess, err := s.known(name)
	if err == nil {
		err = s.mayEnd(who, sess.rec.Name)
	}
	if err == nil && e.closes && sess.rec.Name == DefaultSession {
		e.closes = false // it is always there
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.endSession(ctx, sess, e)
}

// endSession decides in one step, then waits for the ends it has asked for.
func (s *Supervisor) endSession(ctx context.Context, sess *session, e ending) (*wire.SessionReport, error) {
	s.mu.Lock()
	if err := sess.refuse(e); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	rep := &wire.SessionReport{Session: sess.rec.Name, Ended: []handles.ID{}, Dropped: []handles.ID{}, StillActive: []handles.ID{}, StillRunning: []handles.Process{}}
	if sess.closed() && len(sess.live)+len(sess.owed) == 0 {
		s.mu.Unlock()
		return rep, nil
	}
	commits := s.shut(sess, e)
	live := make([]*run, 0, len(sess.live))
	for _, r := range sess.live {
		if r.rec.Delivery == handles.DeliveryPending {
			r.drop = true
			rep.Dropped = append(rep.Dropped, r.id)
		}
		live = append(live, r)
	}
	s.mu.Unlock()
	if err := committed(commits, "record the end of session "+sess.rec.Name); err != nil {
		return nil, err // nothing was done
	}
	for _, r := range live {
		s.decide(r, e.decision(r))
	}
	s.mu.Lock()
	dropped, commits := s.dropOwed(sess)
	sess.changed()
	s.mu.Unlock()
	rep.Dropped = append(rep.Dropped, dropped...)
	slices.Sort(rep.Dropped)
	err := committed(commits, "record what is not delivered")
	s.awaitEnds(ctx, live, e, rep)
	if e.closes {
		s.silence(sess)
	}
	return rep, err
}

// refuse says why the session may not be ended now. s.mu is held.
func (sess *session) refuse(e ending) error {
	if e.polite && sess.parent != nil {
		return busyError(sess)
	}
	if e.idle && (len(sess.live) > 0 || len(sess.owed) > 0) {
		return &handles.Error{
			Code: handles.CodeOwed, ID: sess.rec.Name,
			Message: fmt.Sprintf("session %s is not idle: %d handles live, %d ends are owed", sess.rec.Name, len(sess.live), len(sess.owed)),
			Hint:    "procsup idle --wait and procsup continue first",
		}
	}
	return nil
}

func busyError(sess *session) error {
	return &handles.Error{
		Code: handles.CodeBusy, ID: sess.rec.Name, Active: sess.parent.id,
		Message: fmt.Sprintf("session %s is busy with its parent run %s", sess.rec.Name, sess.parent.id),
		Hint:    "wait for it or cancel it: procsup cancel --run -S " + sess.rec.Name,
	}
}

// shut makes the session closed or new, durably before anything is ended.
// s.mu is held.
func (s *Supervisor) shut(sess *session, e ending) []*journal.Commit {
	switch {
	case sess.closed(): // by an earlier call, which is under way
	case e.closes:
		sess.rec.Status, sess.rec.ClosedAt, sess.rec.Why = handles.SessionClosed, time.Now().UTC(), e.why
		return []*journal.Commit{s.writeSession(sess, "session_closed", true)}
	case e.resets:
		sess.rec.Generation++
		sess.rec.Scopes, sess.rec.Token, sess.rec.Bind = nil, newToken(), nil
		if sess.watch != nil {
			sess.watch.Close()
			sess.watch = nil
		}
		return []*journal.Commit{s.writeSession(sess, "session_reset", true)}
	}
	return nil
}

func (e ending) decision(r *run) decision {
	d := decision{kind: e.kind, cause: handles.CauseSession, by: e.by, reason: e.why, ladder: ladder(r.spec)}
	if e.kind == "shutdown" {
		d.cause = handles.CauseShutdown
	}
	if e.grace != nil {
		if d.ladder.Grace = *e.grace; d.ladder.Grace == 0 {
			d.ladder.Grace = -1 // none at all
		}
	}
	return d
}

// awaitEnds waits for ends as long as their ladders may take and a moment, and
// reports them.
func (s *Supervisor) awaitEnds(ctx context.Context, live []*run, e ending, rep *wire.SessionReport) {
	var longest time.Duration
	for _, r := range live {
		longest = max(longest, e.decision(r).ladder.Grace)
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest+drainMax+time.Second)
	defer cancel()
	for _, r := range live {
		if r.endsWhile(ctx, bound) {
			rep.Ended = append(rep.Ended, r.id)
			rep.StillRunning = append(rep.StillRunning, s.survivors(r.id)...)
			continue
		}
		rep.StillActive = append(rep.StillActive, r.id)
		rep.StillRunning = append(rep.StillRunning, r.processes()...)
	}
	slices.Sort(rep.Ended)
	slices.Sort(rep.StillActive)
	if len(rep.StillActive) > 0 || len(rep.StillRunning) > 0 {
		rep.Error = handles.CodeTimeout
	}
}

// survivors are the processes that the end of a run could not end.
func (s *Supervisor) survivors(id handles.ID) []handles.Process {
	rec, err := s.record(nil, id)
	if err != nil || rec.Cleanup.Kept {
		return nil
	}
	return rec.Cleanup.Survivors
}

// processes are those of a run that has not ended.
func (r *run) processes() []handles.Process {
	r.s.mu.Lock()
	g, leader := r.group, r.phase < observed
	r.s.mu.Unlock()
	if g == nil {
		return nil
	}
	var out []handles.Process
	if id, err := g.Identity(); err == nil && leader {
		out = append(out, handles.Process{PID: id.PID, StartTicks: id.StartTicks, Command: platform.CommandLine(id.PID, 0), Why: late})
	}
	for _, m := range g.Members() {
		out = append(out, handles.Process{PID: m.PID, StartTicks: m.StartTicks, Command: m.Command, Why: late})
	}
	return out
}

const late = "it has not ended in time"

// silence ends the notices of a closed session.
func (s *Supervisor) silence(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(sess.live) > 0 {
		return // the last of them will
	}
	s.hush(sess)
}

// hush tells that the session is closed, once nothing of it lives. s.mu is held.
func (s *Supervisor) hush(sess *session) {
	if sess.hushed {
		return
	}
	sess.hushed = true
	s.notify(sess, wire.Notice{Kind: wire.NoticeClosed, Why: sess.rec.Why})
	sess.notices.Close()
	if sess.watch != nil {
		sess.watch.Close()
		sess.watch = nil
	}
}
