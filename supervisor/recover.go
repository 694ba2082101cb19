package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/keeper"
)

// defaultUnverifiableGrace is Config.UnverifiableGrace unless it is set.
const defaultUnverifiableGrace = 5 * time.Minute

// reapWait is how long the parent of a command that nobody of ours is the parent
// of may take to reap it: only then does the kernel tell how it ended.
const reapWait = 2 * time.Second

const unseen = "keeper and supervisor were both killed, and nobody saw how the command ended"

// recover takes up every run that the journal does not know the end of: with
// the keeper's help as it was, without it as far as its process can be told.
// Nothing is ever run again.
func (s *Supervisor) recover(context.Context) error {
	rows, err := s.journal.Unfinished()
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	held := map[string]keeper.Run{}
	if s.cfg.Handover != nil {
		for _, k := range s.cfg.Handover.Runs {
			held[k.ID] = k
		}
	}
	for _, row := range rows {
		r, err := s.rebuild(row)
		if err != nil {
			return err
		}
		k, ok := held[row.ID]
		delete(held, row.ID)
		switch {
		case ok:
			s.takeUp(r, k)
		case s.fence > 1 && r.rec.ExecIdentity == nil:
			s.interrupted(r) // the keeper lives and never heard of it
		default:
			s.takeUpAlone(r)
		}
	}
	for id, k := range held { // ended in the journal, or never in it
		drop(k)
		if err := s.cfg.Keeper.Settled(id); err != nil {
			s.log.Error("settle with keeper", "id", id, "err", err)
		}
	}
	if s.cfg.Keeper != nil {
		go s.dispatch() // ends with the keeper's socket
	}
	return nil
}

// rebuild makes a run from its projection.
func (s *Supervisor) rebuild(row journal.Run) (*run, error) {
	rec, err := decode(row)
	if err != nil {
		return nil, err
	}
	spec := startOf(row)
	s.mu.Lock()
	sess := s.session(spec.Session)
	s.mu.Unlock()
	r := newRun(s, handles.ID(row.ID), spec, sess)
	r.rec, r.created = *rec, row.Created
	r.told = true // the events of another supervisor's time are gone
	if r.ready != nil && (rec.Readiness == nil || len(rec.Readiness.Conditions) != len(r.ready.conds)) {
		r.rec.Readiness = r.ready.begin(spec) // of a damaged row
	}
	r.drop = rec.Cause == handles.CauseSession || rec.Cause == handles.CauseShutdown && sess.closed()
	if rec.Stop != nil { // decided before the crash: it goes on
		r.stop = &stop{
			decision: decision{kind: "recovered", cause: rec.Cause, by: rec.Stop.By, reason: rec.Stop.Reason, ladder: ladder(r.spec)},
			id:       rec.Stop.ID, seq: rec.Stop.Seq, durable: journal.Committed(),
		}
		wake(r.kick)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.join(r)
	if r.spec.Name != "" {
		s.names[r.key] = r
	}
	return r, nil
}

// takeUp owns a run again whose pipes and process the keeper has held.
func (s *Supervisor) takeUp(r *run, k keeper.Run) {
	switch {
	case k.Pending: // Found tells what became of it
		s.mu.Lock()
		r.held = &k
		s.mu.Unlock()
		return
	case k.StartTicks == 0 && k.Exit != nil: // it may have been this run's, and nobody can tell
		drop(k)
		s.lose(r, k.Exit.Lost)
		return
	case k.StartTicks == 0:
		drop(k)
		s.interrupted(r)
		return
	}
	if err := s.reattach(r, k.Pipes); err != nil {
		s.log.Error("take up output", "id", r.id, "err", err)
	}
	r.exits = make(chan exitSeen, 1)
	if k.Exit != nil {
		r.exits <- seenBy(*k.Exit)
	}
	if err := s.openGroup(r, k.PID, k.StartTicks, k.Pidfd); err != nil {
		s.log.Error("take up", "id", r.id, "pid", k.PID, "exit", fmt.Sprintf("%+v", k.Exit), "status", r.rec.Status, "seq", r.rec.Seq, "last", s.journal.LastSeq(), "err", err)
		s.lose(r, fmt.Sprintf("its process could not be taken up: %v (end known: %v)", err, k.Exit != nil))
		return
	}
	s.mu.Lock()
	var commit *journal.Commit
	if r.rec.PID == 0 { // the supervisor died between spawn and row
		r.rec.PID, r.rec.GroupID, r.rec.Status = k.PID, k.PID, handles.Running
		r.rec.ExecIdentity = &handles.Exec{BootID: platform.BootID(), PID: k.PID, StartTicks: k.StartTicks}
		r.rec.Containment = string(r.group.Containment())
		r.setReadyLimit()
		commit = s.write(r, "spawned", nil)
	}
	r.takeUpReady()
	r.phase = running
	s.mu.Unlock()
	s.watchOwner(r)
	if r.log != nil {
		s.watchMatches(r)
	}
	r.startReady()
	if commit != nil {
		if err := commit.Wait(); err != nil {
			s.log.Error("record spawn", "id", r.id, "err", err)
		}
	}
	s.owners.Add(1)
	go r.own() // ends with the command; Close waits for it
}

// Found is what the keeper learned of a run whose start was cut short by the
// death of the last supervisor: pid 0 says that it was never spawned.
func (s *Supervisor) Found(id string, pid int, startTicks uint64) {
	s.mu.Lock()
	r := s.runs[handles.ID(id)]
	if r == nil || r.held == nil {
		s.mu.Unlock()
		return
	}
	k := *r.held
	r.held = nil
	s.mu.Unlock()
	k.Pending, k.PID, k.StartTicks = false, pid, startTicks
	s.takeUp(r, k)
}

// reattach goes on capturing where the last supervisor stopped.
func (s *Supervisor) reattach(r *run, pipes []*os.File) (err error) {
	cfg := s.captureConfig(r)
	cfg.Resume = true
	if r.log, err = capture.Open(cfg); err != nil {
		closeAll(pipes)
		return err
	}
	sources := r.sources()
	for i, src := range sources {
		if i < len(pipes) {
			err = errors.Join(err, r.log.Attach(src, pipes[i]))
		}
	}
	pipes = pipes[min(len(sources), len(pipes)):]
	if r.spec.Stdin == "pipe" && len(pipes) > 0 {
		r.stdin, pipes = pipes[0], pipes[1:]
	}
	r.ready.takeUp(pipes)
	return err
}

// openGroup takes a command up by its number, which the keeper pins, or by the
// keeper's pidfd where it cannot do that; that one is taken over.
func (s *Supervisor) openGroup(r *run, pid int, ticks uint64, pidfd *os.File) (err error) {
	how := pgroup.Remote{Session: true, Cgroup: s.cgroupOf(r.id), Token: string(r.id)}
	id := platform.Identity{BootID: platform.BootID(), PID: pid, StartTicks: ticks}
	if pidfd == nil {
		r.group, err = pgroup.TakeUp(id, how)
		return err
	}
	r.group, err = pgroup.TakeUpByPidfd(id, pidfd, how)
	return err
}

// cgroupOf is where the control group of a run is, if it has one.
func (s *Supervisor) cgroupOf(id handles.ID) string {
	home, err := platform.FindCgroup()
	if err != nil || home.Base == "" {
		return ""
	}
	return home.Base + "/" + platform.CgroupPrefix + string(id)
}

// takeUpAlone settles a run that no keeper held: keeper and supervisor both
// died, or the machine was started anew.
func (s *Supervisor) takeUpAlone(r *run) {
	id := platform.Identity{}
	switch e := r.rec.ExecIdentity; {
	case e != nil:
		id = platform.Identity{BootID: e.BootID, PID: e.PID, StartTicks: e.StartTicks}
	case r.rec.Status == handles.Starting:
		s.lose(r, "procsup was killed while it started the command")
		return
	}
	switch id.Liveness() {
	case platform.Exited:
		s.lose(r, "keeper and supervisor were both killed, and the command ended unseen")
	case platform.Live:
		s.watchAlone(r, id)
	default:
		s.mu.Lock()
		r.unverifiable = true
		s.mu.Unlock()
		s.owners.Add(1)
		go s.doubt(r) // ends with the grace, a stop or life; Close waits for it
	}
}

// doubt keeps a run whose process can neither be seen nor ruled out until its
// grace is over, or until somebody stops it: it cannot be signalled.
func (s *Supervisor) doubt(r *run) {
	defer s.owners.Done()
	grace := time.NewTimer(s.cfg.UnverifiableGrace)
	defer grace.Stop()
	select {
	case <-s.life.Done():
	case <-grace.C:
		s.lose(r, "its process could not be verified for "+s.cfg.UnverifiableGrace.String())
	case <-r.kick:
		s.lose(r, "its process could not be verified, so it was stopped without a signal")
	}
}

// watchAlone owns a run that still lives, without its output: the pipes died
// with the keeper, so it gets SIGPIPE when it writes.
func (s *Supervisor) watchAlone(r *run, id platform.Identity) {
	r.exits = make(chan exitSeen, 1)
	if err := s.openGroup(r, id.PID, id.StartTicks, nil); err != nil {
		s.lose(r, "keeper and supervisor were both killed, and the command ended unseen")
		return
	}
	s.mu.Lock()
	r.phase = running
	r.takeUpReady()
	r.rec.Error = "keeper and supervisor were both killed: its output is lost from then on, and it dies of SIGPIPE when it writes"
	s.mu.Unlock()
	go func() { // ends with the process
		told := make(chan exitSeen, 1)
		go func() { // ends when its parent has reaped it, or with this process
			exit, known := r.group.AwaitEnd()
			seen := exitSeen{exit: exit, at: time.Now()}
			if !known {
				seen.lost = unseen
			}
			told <- seen
		}()
		<-r.group.Done()
		seen := exitSeen{at: time.Now(), lost: unseen}
		select {
		case seen = <-told:
		case <-time.After(reapWait):
		}
		r.exits <- seen
	}()
	r.startReady()
	s.owners.Add(1)
	go r.own()             // ends with the command; Close waits for it
	if r.spec.Foreground { // unless it was released
		s.ownerGone(r, "keeper and supervisor were both killed, and with them what its caller held")
	}
}

// lose ends a run whose outcome is unknown.
func (s *Supervisor) lose(r *run, why string) { s.endUnowned(r, handles.Lost, why) }

// interrupted ends a run that was admitted and never started.
func (s *Supervisor) interrupted(r *run) {
	s.endUnowned(r, handles.Interrupted, "procsup was replaced or killed before the command was started; it was not started again")
}

func (s *Supervisor) endUnowned(r *run, status handles.Status, why string) {
	r.ready.closeFiles()
	if r.log != nil {
		r.log.Close()
	}
	s.mu.Lock()
	r.rec.Status, r.rec.Error, r.rec.Liveness = status, why, string(platform.Exited)
	r.rec.EndedAt = time.Now().UTC()
	if r.rec.Stop != nil && r.rec.Stop.Answer == "" {
		stop := *r.rec.Stop // others may hold the old one
		stop.Answer = "unconfirmed"
		r.rec.Stop = &stop
	}
	r.rec.Events = r.counted()
	commit := s.write(r, "ended", nil)
	s.mu.Unlock()
	if err := commit.Wait(); err != nil {
		s.log.Error("record end", "id", r.id, "err", err)
	}
	if s.cfg.Keeper != nil {
		_ = s.cfg.Keeper.Settled(string(r.id))
	}
	s.forget(r)
}

// dispatch hands the ends that the keeper saw to the owners of the runs.
func (s *Supervisor) dispatch() {
	for e := range s.cfg.Keeper.Exits() {
		s.mu.Lock()
		r := s.runs[handles.ID(e.ID)]
		if r != nil && r.held != nil {
			r.held.Exit = &e
			k := *r.held
			if e.Lost == "" { // Found says which process that was
				s.mu.Unlock()
				continue
			}
			r.held, k.Pending = nil, false
			s.mu.Unlock()
			s.takeUp(r, k)
			continue
		}
		s.mu.Unlock()
		if r != nil && r.exits != nil {
			r.exits <- seenBy(e) // room for the one that comes
		}
	}
}

// seenBy takes over what the keeper saw. A command's memory high-water mark
// begins with that of the supervisor that spawned it, which is about ours.
func seenBy(e keeper.Exit) exitSeen {
	if e.Usage.MaxRSS <= 2*platform.SelfMaxRSS() {
		e.Usage.MaxRSS = 0
	}
	return exitSeen{exit: e.Exit, usage: e.Usage, at: e.At, lost: e.Lost}
}

// drop closes what was handed over of a run.
func drop(k keeper.Run) {
	closeAll(k.Pipes)
	if k.Pidfd != nil {
		k.Pidfd.Close()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
