package supervisor

import (
	"time"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/outcome"
)

// defaultUnverifiableGrace is Config.UnverifiableGrace unless it is set.
const defaultUnverifiableGrace = 5 * time.Minute

// reapWait is how long the parent of a command that nobody of ours is the parent
// of may take to reap it: only then does the kernel tell how it ended.
const reapWait = 2 * time.Second

const unseen = "keeper and supervisor were both killed, and nobody saw how the command ended"

// takeUpAlone settles a run that no keeper held: keeper and supervisor both
// died, or the machine was started anew.
func (s *Supervisor) takeUpAlone(r *run) {
	id := platform.Identity{}
	switch e := r.rec.ExecIdentity; {
	case e != nil:
		id = platform.Identity{BootID: e.BootID, PID: e.PID, StartTicks: e.StartTicks}
	case r.rec.Status != handles.Starting: // an old row without a number
	case s.findLeader(r):
		found := r.rec.ExecIdentity
		id = platform.Identity{BootID: found.BootID, PID: found.PID, StartTicks: found.StartTicks}
	default:
		s.loseTree(r, "procsup was killed while it started the command")
		return
	}
	switch id.Liveness() {
	case platform.Exited:
		s.loseTree(r, s.endedUnseen())
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
	if err := s.openGroup(r, id.PID, id.StartTicks, nil, nil); err != nil {
		s.loseTree(r, s.endedUnseen())
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

// endedUnseen says why nobody knows how a command ended.
func (s *Supervisor) endedUnseen() string {
	if s.fence > 1 { // the keeper was told of an end that the journal has lost
		return "how it ended was recorded, and the journal has lost it"
	}
	return "keeper and supervisor were both killed, and the command ended unseen"
}

// findLeader looks for the command of a run that was spawned by processes which
// died before the journal had its number.
func (s *Supervisor) findLeader(r *run) bool {
	found, _ := s.left().Of(string(r.id), platform.MarkFor(string(r.id)))
	id := found.Leader
	if id.PID == 0 {
		return false
	}
	s.mu.Lock()
	r.rec.PID, r.rec.GroupID, r.rec.Status = id.PID, id.PID, handles.Running
	if r.stop != nil {
		r.rec.Status = handles.Stopping
	}
	r.rec.ExecIdentity = &handles.Exec{BootID: id.BootID, PID: id.PID, StartTicks: id.StartTicks}
	commit := s.write(r, "spawned", nil)
	s.mu.Unlock()
	if err := commit.Wait(); err != nil {
		s.log.Error("record spawn", "id", r.id, "err", err)
	}
	return true
}

// loseTree ends a run whose leader is gone and deals with what it left behind as
// if it had just ended.
func (s *Supervisor) loseTree(r *run, why string) {
	mark, home := platform.MarkFor(string(r.id)), s.cgroupOf(r.id)
	_, carried := s.left().Of(string(r.id), mark)
	if !carried && !pgroup.CgroupHolds(home) {
		s.lose(r, why)
		return
	}
	s.mu.Lock()
	if r.phase = observed; r.stop != nil { // also of what was to be waited for
		wake(r.late)
	}
	s.mu.Unlock()
	s.owners.Add(1)
	go func() { // ends within the ladder, with the policy wait when the tree has
		defer s.owners.Done()
		g := pgroup.TakeUpLeft(pgroup.Remote{Session: true, Cgroup: home, Token: string(r.id), Mark: mark})
		rep := r.finish(g, 0, newAlarm(r.spec.DeadlineMS, r.rec.StartedAt), nil)
		g.Release()
		if s.life.Err() != nil {
			return
		}
		s.mu.Lock()
		outcome.Cleanup(&r.rec, r.rec.StartedAt, rep)
		s.mu.Unlock()
		s.lose(r, why)
	}()
}
