package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/keeper"
)

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
			if err := s.takeUp(r, k); err != nil {
				return err
			}
		case s.fence > 1 && r.rec.ExecIdentity == nil:
			s.interrupted(r) // the keeper lives and never heard of it
		default:
			s.takeUpAlone(r)
		}
	}
	for _, k := range held {
		if err := s.recoverHeld(k); err != nil {
			return err
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
	r.rec, r.created, r.durable = *rec, row.Created, true
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

// scarce tells errors that are about this process or machine and not about the
// run: no run may be lost for them.
func scarce(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// takeUp owns a run again whose pipes and process the keeper has held. An error
// says that this process has not the means to: it must end, and leave all to the
// keeper and the next.
func (s *Supervisor) takeUp(r *run, k keeper.Run) error {
	switch {
	case k.Pending: // Found tells what became of it
		s.mu.Lock()
		r.held = &k
		s.mu.Unlock()
		return nil
	case k.StartTicks == 0 && k.Exit != nil: // it may have been this run's, and nobody can tell
		drop(k)
		s.lose(r, k.Exit.Lost)
		return nil
	case k.StartTicks == 0:
		drop(k)
		s.interrupted(r)
		return nil
	}
	if err := s.reattach(r, k.Pipes); scarce(err) {
		return fmt.Errorf("take up %s: %w", r.id, err)
	} else if err != nil {
		s.log.Error("take up output", "id", r.id, "err", err)
	}
	r.exits = make(chan exitSeen, 1)
	if k.Exit != nil {
		r.exits <- seenBy(*k.Exit)
	}
	s.leaders.add(k.PID) // first: it is nobody else's orphan
	if err := s.openGroup(r, k.PID, k.StartTicks, k.Pidfd, s.siblings); err != nil {
		s.leaders.remove(k.PID)
		if scarce(err) {
			return fmt.Errorf("take up %s: %w", r.id, err)
		}
		s.log.Error("take up", "id", r.id, "pid", k.PID, "exit", fmt.Sprintf("%+v", k.Exit), "status", r.rec.Status, "seq", r.rec.Seq, "last", s.journal.LastSeq(), "err", err)
		s.lose(r, fmt.Sprintf("its process could not be taken up: %v (end known: %v)", err, k.Exit != nil))
		return nil
	}
	s.ownAgain(r, k)
	return nil
}

// ownAgain goes on with a run whose output and group are taken up.
func (s *Supervisor) ownAgain(r *run, k keeper.Run) {
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

// mustTakeUp is takeUp after the recovery, when there is room for a new run too.
func (s *Supervisor) mustTakeUp(r *run, k keeper.Run) {
	if err := s.takeUp(r, k); err != nil {
		s.lose(r, err.Error())
	}
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
	s.mustTakeUp(r, k)
}

// reattach goes on capturing where the last supervisor stopped.
func (s *Supervisor) reattach(r *run, pipes []*os.File) (err error) {
	cfg := s.captureConfig(r)
	cfg.Resume = true
	log, err := capture.Open(cfg)
	if err != nil {
		closeAll(pipes)
		return err
	}
	s.mu.Lock()
	r.log = log
	r.ring()
	s.mu.Unlock()
	sources := r.sources()
	for i, src := range sources {
		if i < len(pipes) {
			err = errors.Join(err, s.reattachOne(r, src, i, pipes[i]))
		}
	}
	pipes = pipes[min(len(sources), len(pipes)):]
	pipes = r.ready.takeUp(pipes)
	if r.spec.Stdin == "pipe" && len(pipes) > 0 {
		r.keepStdin(pipes[0])
		pipes = pipes[1:]
	}
	closeAll(pipes)
	return err
}

// reattachOne gives a pipe to the log. At each moment somebody holds it who is
// asked for it should the keeper die.
func (s *Supervisor) reattachOne(r *run, src capture.Source, i int, f *os.File) error {
	defer f.Close()
	in, err := capture.DupPipe(f)
	if err != nil {
		return fmt.Errorf("take pipe for %v: %w", src, err)
	}
	if s.cfg.Keeper != nil {
		s.cfg.Keeper.HoldPipe(string(r.id), i, in)
	}
	f.Close() // before it is attached
	return r.log.AttachPipe(src, in)
}

// openGroup takes a command up by its number, which the keeper pins, or by the
// keeper's pidfd where it cannot do that; that one is taken over. siblings are the
// keeper's children if the command is one of them, nil if it is nobody's of ours.
func (s *Supervisor) openGroup(r *run, pid int, ticks uint64, pidfd *os.File, siblings *pgroup.Siblings) (err error) {
	how := pgroup.Remote{Session: true, Cgroup: s.cgroupOf(r.id), Token: string(r.id), Mark: platform.MarkFor(string(r.id))}
	id := platform.Identity{BootID: platform.BootID(), PID: pid, StartTicks: ticks}
	var g *pgroup.Group
	if pidfd == nil {
		how.Siblings = siblings
		g, err = pgroup.TakeUp(id, how)
	} else {
		g, err = pgroup.TakeUpByPidfd(id, pidfd, how)
	}
	if err == nil && s.cfg.Keeper != nil {
		if held, err := g.Pidfd().SyscallConn(); err == nil {
			s.cfg.Keeper.HoldPidfd(string(r.id), held)
		}
	}
	s.mu.Lock()
	r.group = g
	s.mu.Unlock()
	return err
}

// cgroupOf is where the control group of a run is, if it has one.
func (s *Supervisor) cgroupOf(id handles.ID) string {
	home := s.cgroupHome()
	if home == "" {
		return ""
	}
	return home + "/" + platform.CgroupPrefix + string(id)
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
	if r.stop != nil && status == handles.Interrupted { // it was stopped before it could run
		r.cancelled()
	} else {
		r.rec.Status, r.rec.Error = status, why
	}
	r.rec.EndedAt, r.rec.Liveness = time.Now().UTC(), string(platform.Exited)
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
			s.mustTakeUp(r, k)
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
