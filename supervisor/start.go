package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"procsup/capture"
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
	return envelope(r, r.atStart), nil
}

// admit takes the run into the journal, or says why not. Nothing is reserved
// or started when it fails.
func (s *Supervisor) admit(spec wire.Start, parent string) (*run, *journal.Commit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.replay(spec); err != nil { // before any refusal: a repeat is not new work
		return nil, nil, err
	}
	if s.closing || s.draining {
		return nil, nil, drainingError()
	}
	sess, err := s.open(spec.Session)
	if err != nil {
		return nil, nil, err
	}
	if err := s.room(sess, spec); err != nil {
		return nil, nil, err
	}
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
	return s.limits.admit(len(s.runs) + (s.extra+fdsPerRun-1)/fdsPerRun)
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
	if err := admitted.Wait(); err != nil { // no spawn before the journal took it
		s.drop(r)
		if errors.Is(err, journal.ErrClosed) {
			return handles.ErrStarting // this process is being replaced; nothing was started
		}
		return &handles.Error{Code: handles.CodePersistence, ID: s.cfg.Dir, Message: fmt.Sprintf("the journal could not take the start, nothing was started: %v", err)}
	}
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
	r.atStart = r.rec
	r.ring()
	s.notifyRun(r.sess, wire.NoticeStarted, &r.rec)
	s.mu.Unlock()
	r.event(wire.Event{Kind: wire.EventStarted, Status: handles.Running})
	s.watchOwner(r)
	s.watchMatches(r)
	r.startReady()
	s.owners.Add(1)
	go r.own() // ends with the command; Close waits for it
	if err := commit.Wait(); err != nil {
		s.log.Error("record spawn", "id", r.id, "err", err) // it runs, and its end will be recorded
	}
	return nil
}

// A plumbing is the files of a run before the spawn.
type plumbing struct {
	child [3]*os.File // the command's 0, 1, 2; nil = /dev/null
	more  []numbered  // and further ones
	// ours is for the keeper: read ends of the pipes, the write end of stdin, the
	// notify socket, the read ends of fd:N. reattach knows them by this order.
	ours []*os.File
}

func (p *plumbing) closeChild() {
	for i, f := range p.child {
		if f != nil && !(i == 2 && f == p.child[1]) {
			f.Close()
		}
	}
	for _, m := range p.more {
		m.file.Close()
	}
}

// A numbered is a descriptor that the command gets under a number of its own.
type numbered struct {
	n    int
	file *os.File
}

// further are those beyond 2, as pgroup takes them.
func (p *plumbing) further() map[int]*os.File {
	files := map[int]*os.File{}
	for _, m := range p.more {
		files[m.n] = m.file
	}
	return files
}

// prepare makes the spools and pipes and registers them with the keeper.
func (s *Supervisor) prepare(r *run) (p *plumbing, f *outcome.Failure) {
	name := r.spec.Command[0]
	fail := func(step, path string, err error) (*plumbing, *outcome.Failure) {
		return nil, outcome.Fail(outcome.ExitProcsup, step, err, path, "start %s: %s %s: %v", name, step, path, err)
	}
	var err error
	if r.log, err = capture.Open(s.captureConfig(r)); err != nil {
		return fail("capture", s.dir(r.id), err)
	}
	p = &plumbing{}
	sources := r.sources()
	for _, src := range sources {
		ours, theirs, err := pipe()
		if err != nil {
			p.closeChild()
			return fail("pipe", src.String(), err)
		}
		p.child[1+int(src)] = theirs
		p.ours = append(p.ours, ours)
	}
	if r.spec.Merge {
		p.child[2] = p.child[1]
	}
	if err := s.openStdin(r, p); err != nil {
		p.closeChild()
		return fail("stdin", r.spec.Stdin, err)
	}
	if err := r.ready.open(p); err != nil {
		p.closeChild()
		return fail("ready", strings.Join(r.spec.Ready, ", "), err)
	}
	if s.cfg.Keeper != nil {
		if err := s.cfg.Keeper.Register(string(r.id), string(r.id), p.ours); err != nil {
			p.closeChild()
			return fail("register", "with the keeper", err)
		}
	}
	s.hook("registered", r)
	for i, src := range sources {
		if err := r.log.Attach(src, p.ours[i]); err != nil {
			p.closeChild()
			return fail("capture", src.String(), err)
		}
	}
	return p, nil
}

// sources are the streams of a run, in the order of its pipes; after them comes
// stdin.
func (r *run) sources() []capture.Source {
	if r.spec.Merge {
		return []capture.Source{capture.Stdout}
	}
	return []capture.Source{capture.Stdout, capture.Stderr}
}

func (s *Supervisor) captureConfig(r *run) capture.Config {
	return capture.Config{Dir: s.dir(r.id), MaxOutput: r.spec.MaxOutput, Grown: s.grow, Quota: s.quota, Published: r.captured}
}

func drainingError() error {
	return &handles.Error{Code: handles.CodeDraining, Message: "the daemon is shutting down and starts nothing"}
}

func (s *Supervisor) openStdin(r *run, p *plumbing) (err error) {
	switch r.spec.Stdin {
	case "", "null":
	case "pipe":
		p.child[0], r.stdin, err = pipe()
		if err == nil {
			p.ours = append(p.ours, r.stdin)
		}
	default:
		p.child[0], err = os.Open(r.spec.Stdin)
	}
	return err
}

// pipe makes a pipe of which only our end does not block.
func pipe() (r, w *os.File, err error) {
	r, w, err = os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return r, w, nil
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
	s.cfg.Keeper.Mark(string(r.id), func() {
		g, err = withUmask(r.spec.Umask, func() (*pgroup.Group, error) {
			return pgroup.Start(cmd, pgroup.Config{Containment: level, Token: string(r.id), Subreaper: s.sub})
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
		r.rec.Status, r.rec.Cause, r.rec.Ending = handles.Cancelled, r.stop.cause, "failed"
		if r.stop.by == "user" {
			r.rec.Ending = "interrupted"
		}
		r.rec.Stop = &handles.Stop{ID: r.stop.id, By: r.stop.by, Reason: r.stop.reason, Seq: r.stop.seq, Answer: "took"}
	} else {
		r.rec.Status, r.rec.Error, r.rec.SpawnError = handles.Failed, f.Msg, &f.Spawn
	}
	if r.log != nil {
		r.rec.Output = r.output(true)
	}
	r.rec.Events = r.counted()
	commit := s.write(r, "ended", nil)
	r.atStart = r.rec
	s.mu.Unlock()
	if err := commit.Wait(); err != nil {
		s.log.Error("record end", "id", r.id, "err", err)
	}
	if s.cfg.Keeper != nil {
		_ = s.cfg.Keeper.Withdraw(string(r.id))
	}
	s.forget(r)
}

// drop forgets a run whose admission did not become durable.
func (s *Supervisor) drop(r *run) {
	s.mu.Lock()
	delete(s.keys, r.spec.Idempotency)
	s.mu.Unlock()
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
