package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/outcome"
	"procsup/supervisor/wire"
)

// Start runs a command in the background and answers once it runs, or has
// failed to start, and both are durable. The context bounds the call, not the
// command. A key that was seen before gives the first answer again.
func (s *Supervisor) Start(ctx context.Context, req wire.Start) (*wire.Started, error) {
	req.Foreground, req.Owner = false, nil
	return s.start(ctx, req, nil)
}

// StartTake is Start for a caller that takes the end of the run out of the inbox
// if it comes within the time in front: Batch is to be acknowledged then.
func (s *Supervisor) StartTake(ctx context.Context, req wire.Start, who Caller) (*wire.Started, error) {
	req.Foreground, req.Owner = false, nil
	return s.start(ctx, req, &who)
}

func (s *Supervisor) start(ctx context.Context, req wire.Start, who *Caller) (*wire.Started, error) {
	spec, err := check(req)
	if err != nil {
		return nil, err
	}
	r, commit, err := s.admit(spec, "")
	var again *replay
	if errors.As(err, &again) {
		return s.replayed(ctx, again, req, who)
	}
	if err != nil {
		return nil, err
	}
	if req.BackgroundMS != nil && who != nil {
		defer s.claim(r, *who)() // before it can end
	}
	if err := s.launch(r, commit); err != nil {
		return nil, err
	}
	if req.BackgroundMS != nil && !req.Foreground {
		return s.inFront(ctx, r, r.id, millis(*req.BackgroundMS), who)
	}
	return r.envelope(), nil
}

// admit takes the run into the journal, or says why not. Nothing is reserved
// or started when it fails.
func (s *Supervisor) admit(spec wire.Start, parent string) (*run, *journal.Commit, error) {
	missing := s.journal.Missing()
	key, asOf, err := s.lookUp(spec)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	for spec.Idempotency != "" && asOf != s.keyEnds { // one that ended meanwhile may have been of this key
		s.mu.Unlock()
		if key, asOf, err = s.lookUp(spec); err != nil {
			return nil, nil, err
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if err := s.replay(spec, key); err != nil { // before any refusal: a repeat is not new work
		return nil, nil, err
	}
	if err := s.accepts(missing); err != nil {
		return nil, nil, err
	}
	sess, err := s.open(spec.Session)
	if err != nil {
		return nil, nil, err
	}
	if err := s.room(sess, spec); err != nil {
		return nil, nil, err
	}
	s.sessions[sess.rec.Name] = sess
	if !sess.stored {
		s.writeSession(sess, "session_open", false) // committed with or before the run
	}
	r := newRun(s, handles.NewID(), spec, sess)
	r.rec = handles.Record{
		HandleID: r.id, Kind: "handle", Name: spec.Name, Tag: spec.Tag, Scope: spec.Scope, SessionID: spec.Session, Parent: parent,
		Command: spec.Command, Descriptor: strings.Join(spec.Command, " "), Dir: spec.Dir,
		Status: handles.Starting, Liveness: string(platform.Unverifiable), Lease: spec.Lease, Lifetime: "session",
		Delivery: handles.DeliveryNone, StartedAt: time.Now().UTC(), Cleanup: outcome.NoCleanup(),
	}
	r.rec.Readiness = r.ready.begin(spec)
	switch {
	case spec.Foreground:
		r.rec.Kind, r.rec.Lifetime, r.rec.Lease = kindRun, "scope", ""
	case spec.Lease == LeaseAwaited:
		r.rec.Delivery = handles.DeliveryPending
	}
	s.join(r)
	if spec.Name != "" {
		s.names[r.key] = r
	}
	if spec.Idempotency != "" {
		s.keys[spec.Idempotency] = r
	}
	return r, s.write(r, "admitted", nil), nil
}

// leaving refuses new work when this process is going away: for good, or so that
// who asks again finds its successor. s.mu is held.
func (s *Supervisor) leaving() error {
	switch {
	case s.draining:
		return drainingError()
	case s.closing:
		return &handles.Error{Code: handles.CodeStarting, Message: "the daemon is being replaced", Hint: "try again in a moment"}
	}
	return nil
}

func drainingError() error {
	return &handles.Error{Code: handles.CodeDraining, Message: "the daemon is shutting down and starts nothing"}
}

// accepts refuses every start when this process is going away, or has no journal
// any more: what runs goes on, but nobody would know of a new one after a restart.
// s.mu is held.
func (s *Supervisor) accepts(missing error) error {
	if err := s.leaving(); err != nil || missing == nil {
		return err
	}
	return &handles.Error{Code: handles.CodePersistence, ID: s.cfg.Dir, Message: fmt.Sprintf("nothing was started: %v", missing), Hint: "procsup daemon --stop, then start it again"}
}

// room refuses what there is no place for, before anything is started.
func (s *Supervisor) room(sess *session, spec wire.Start) error {
	if err := sess.inScope(spec.Scope); err != nil {
		return err
	}
	if spec.Foreground && sess.parent != nil {
		return busyError(sess)
	}
	if needsPlace(spec) {
		if err := sess.place(); err != nil {
			return err
		}
	}
	if other := s.names[nameKey{spec.Session, spec.Name}]; spec.Name != "" && other != nil {
		return &handles.Error{Code: handles.CodeNameTaken, ID: string(other.id), Message: fmt.Sprintf("the name %s is taken by %s, which still runs", spec.Name, other.id), Hint: "cancel it, or use another name"}
	}
	if n := len(sess.live); n >= s.cfg.SessionLive {
		return &handles.Error{Code: handles.CodeFull, ID: spec.Session, Message: fmt.Sprintf("session %s has %d live handles, which is its limit", spec.Session, n), Hint: "cancel some, or start the daemon with a higher --session-limit"}
	}
	return s.limits.admit(len(s.runs), s.used, s.limits.cost(spec))
}

// needsPlace reports whether the end of a run may be owed: not if it stays in
// front.
func needsPlace(spec wire.Start) bool {
	return spec.Lease == LeaseAwaited && (!spec.Foreground || spec.BackgroundMS != nil)
}

// launch takes an admitted run to its spawn, or to its end if it cannot be
// started or was stopped meanwhile. An error says that nothing was admitted
// after all.
func (s *Supervisor) launch(r *run, admitted *journal.Commit) error {
	s.hook("submitted", r)
	if err := admitted.Wait(); err != nil { // no spawn before the journal took it
		s.drop(r)
		if errors.Is(err, journal.ErrClosed) {
			return handles.ErrStarting // this process is being replaced; nothing was started
		}
		return &handles.Error{Code: handles.CodePersistence, ID: s.cfg.Dir, Message: fmt.Sprintf("the journal could not take the start, nothing was started: %v", err)}
	}
	s.mu.Lock()
	r.durable = true
	s.mu.Unlock()
	s.hook("admitted", r)
	files, f := s.prepare(r)
	if f == nil {
		f = s.spawn(r, files)
	}
	if f != nil {
		s.notStarted(r, f)
		return nil
	}
	s.mu.Lock()
	r.phase = max(r.phase, running)
	commit := s.write(r, "spawned", nil)
	r.atStart = r.answer()
	r.ring()
	s.notifyRun(r.sess, wire.NoticeStarted, &r.rec)
	s.mu.Unlock()
	r.event(wire.Event{Kind: wire.EventStarted, Status: handles.Running})
	s.watchOwner(r)
	s.watchMatches(r)
	r.startReady()
	s.owners.Add(1)
	go r.own() // ends with the command; Close waits for it
	s.settleHeap()
	if err := commit.Wait(); err != nil {
		s.log.Error("record spawn", "id", r.id, "err", err) // it runs, and its end will be recorded
	}
	s.hook("recorded", r)
	return nil
}

// spawn starts the command unless a stop came first.
func (s *Supervisor) spawn(r *run, p *plumbing) *outcome.Failure {
	defer p.closeChild()
	path, f := outcome.Lookup(r.spec.Command[0], r.spec.Env, r.spec.Dir)
	if f != nil {
		return f
	}
	s.mu.Lock()
	stopped := r.stop != nil
	s.mu.Unlock()
	if stopped {
		return &outcome.Failure{} // the stop is the ending
	}
	cmd := pgroup.Command{
		Path: path, Args: r.spec.Command, Env: r.ready.environ(r.spec), Dir: r.spec.Dir,
		Stdin: p.child[0], Stdout: p.child[1], Stderr: p.child[2], Files: p.further(), Session: true,
	}
	level, _ := pgroup.ParseLevel(r.spec.Containment) // checked at admission
	var g *pgroup.Group
	var err error
	cfg := pgroup.Config{Containment: level, Token: string(r.id), Subreaper: s.sub, Many: true, Mark: true}
	if s.cfg.Keeper != nil {
		cfg.BornWith = platform.MarkFor(string(r.id))
	}
	s.cfg.Keeper.Mark(string(r.id), func() {
		g, err = withUmask(r.spec.Umask, func() (*pgroup.Group, error) {
			return pgroup.Start(cmd, cfg)
		})
	})
	if err != nil {
		return outcome.Explain(err, r.spec.Command, r.spec.Env, r.spec.Dir)
	}
	s.hook("spawned", r)
	id, err := g.Identity()
	if err == nil && s.cfg.Keeper != nil {
		if err := s.cfg.Keeper.Spawned(string(r.id), g.PID(), id.StartTicks); err != nil {
			s.log.Error("tell the keeper of a spawn", "id", r.id, "err", err)
		}
	}
	s.hook("told", r)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.group = g
	r.rec.Status, r.rec.StartedAt = handles.Running, g.Started().UTC()
	if r.stop != nil {
		r.rec.Status = handles.Stopping
	}
	r.rec.PID, r.rec.GroupID = g.PID(), g.PID()
	r.rec.Containment = string(g.Containment())
	r.rec.ExecIdentity = &handles.Exec{BootID: id.BootID, PID: id.PID, StartTicks: id.StartTicks}
	r.rec.Liveness = string(platform.Live)
	r.setReadyLimit()
	return nil
}

// notStarted ends a run that never got a process.
func (s *Supervisor) notStarted(r *run, f *outcome.Failure) {
	if r.log != nil {
		r.log.Close()
	}
	r.closeStdin()
	r.ready.closeFiles()
	s.mu.Lock()
	r.rec.EndedAt, r.rec.Liveness = time.Now().UTC(), string(platform.Exited)
	if r.stop != nil {
		r.cancelled()
	} else {
		r.rec.Status, r.rec.Error, r.rec.SpawnError = handles.Failed, f.Msg, &f.Spawn
	}
	if r.log != nil {
		r.rec.Output = r.output(true)
	}
	r.rec.Events = r.counted()
	commit := s.write(r, "ended", nil)
	r.atStart = r.answer()
	s.mu.Unlock()
	if err := commit.Wait(); err != nil {
		s.log.Error("record end", "id", r.id, "err", err)
	}
	if s.cfg.Keeper != nil {
		_ = s.cfg.Keeper.Withdraw(string(r.id))
	}
	s.forget(r)
}

// cancelled is the ending of a run that was stopped before it ran. s.mu is held.
func (r *run) cancelled() {
	r.rec.Status, r.rec.Cause, r.rec.Ending = handles.Cancelled, r.stop.cause, "failed"
	if r.stop.by == "user" {
		r.rec.Ending = "interrupted"
	}
	r.rec.Stop = &handles.Stop{ID: r.stop.id, By: r.stop.by, Reason: r.stop.reason, Seq: r.stop.seq, Answer: "took"}
}

// drop forgets a run whose admission did not become durable.
func (s *Supervisor) drop(r *run) {
	s.forget(r)
}

// withUmask starts a program with the caller's umask; nil = ours.
func withUmask(mask *int, start func() (*pgroup.Group, error)) (g *pgroup.Group, err error) {
	if mask == nil {
		return start()
	}
	platform.WithUmask(*mask, func() { g, err = start() })
	return g, err
}
