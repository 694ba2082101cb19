package pgroup

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"procsup/platform"
)

// Stop ends the whole tree by the ladder and reports what is left. It takes at
// most Grace and Settle, and longer only for what was killed and is dying. A receive
// from next goes to the next step at once; nil never does. The leader stays unreaped.
// Only one Stop or Finish may run.
func (g *Group) Stop(l Ladder, next <-chan struct{}) Report {
	s := g.newSweep(l, next)
	defer s.watch.close()
	if g.remote || g.sub != nil {
		g.members() // so that they are known when the leader leaves them to others
	}
	g.step(s.ladder.Signal)
	s.groupTold = s.ladder.Signal
	switch s.awaitLeader() {
	case leaderGone:
		s.term()
	case hurried:
		if s.hurry() {
			s.term()
		}
	}
	s.kill()
	return Report{Signals: g.Signals(), Survivors: s.survivors()}
}

// Finish deals with what outlives a leader that ended by itself; it blocks
// until that. Processes that end on their own within linger are not leftovers:
// a shell's process substitution needs a moment to finish. A receive from next
// ends the waiting of policy Wait, and later goes to the next step.
func (g *Group) Finish(policy Leftover, linger time.Duration, l Ladder, next <-chan struct{}) Report {
	<-g.done
	if g.gone() {
		return g.quiet()
	}
	s := g.newSweep(l, next)
	defer s.watch.close()
	switch s.empty(time.Now().Add(linger)) {
	case allGone:
		return g.quiet()
	case hurried:
		policy = Kill
	}
	left := describe(g.members())
	switch policy {
	case Keep:
		return Report{Leftovers: left, Survivors: left, Kept: len(left) > 0}
	case Wait:
		if s.empty(time.Time{}) == allGone {
			return Report{Leftovers: left}
		}
	}
	s.restart()
	s.term()
	s.kill()
	return Report{Signals: g.Signals(), Leftovers: left, Survivors: s.survivors()}
}

// quiet is the report on a tree of which nothing within reach is left.
func (g *Group) quiet() Report { return Report{Survivors: g.strays()} }

// step sends one signal to the leader's group and continues it.
func (g *Group) step(sig syscall.Signal) {
	if g.pid == 0 { // of TakeUpLeft: there is no number
		return
	}
	err := g.Signal(sig)
	if errors.Is(err, platform.ErrGone) {
		return
	}
	g.note(sig, ToGroup, g.pid, err)
	if sig != syscall.SIGKILL {
		_ = g.Signal(syscall.SIGCONT)
	}
}

// A sweep is one pass down the ladder. It belongs to the goroutine that runs
// Stop or Finish.
type sweep struct {
	g         *Group
	ladder    Ladder
	next      <-chan struct{}
	deadline  time.Time // end of the grace
	watch     *watch
	groupTold syscall.Signal // what the group got last, 0 = nothing
	told      map[int]uint64 // members outside it that got TERM
}

func (g *Group) newSweep(l Ladder, next <-chan struct{}) *sweep {
	s := &sweep{g: g, ladder: l.withDefaults(), next: next, watch: newWatch(g.sub), told: map[int]uint64{}}
	s.restart()
	return s
}

// restart begins the grace anew, for a sweep that first only waited.
func (s *sweep) restart() { s.deadline = time.Now().Add(max(s.ladder.Grace, 0)) }

// A wake is what a wait ended by.
type wake int

const (
	leaderGone wake = iota
	memberGone      // or nobody could be watched: look again
	allGone
	timeOver
	hurried // the next step was asked for
)

func (s *sweep) awaitLeader() wake {
	timer := time.NewTimer(time.Until(s.deadline))
	defer timer.Stop()
	select {
	case <-s.g.done:
		return leaderGone
	case <-timer.C:
		return timeOver
	case <-s.next:
		return hurried
	}
}

// hurry is the second step while the leader still runs: TERM to all who have
// not had it. It reports whether there was anyone; if not, KILL is next.
func (s *sweep) hurry() bool {
	any := s.groupTold != syscall.SIGTERM
	if any {
		s.g.step(syscall.SIGTERM)
		s.groupTold = syscall.SIGTERM
	}
	return s.tell(s.g.members()) || any
}

// term sends TERM to whatever was not reached yet and waits until all is gone
// or the grace is over. Newcomers get theirs as they are found.
func (s *sweep) term() {
	for !s.settled() {
		ms := s.g.members()
		s.tell(ms)
		if w := s.watch.await(ms, s.g.done, s.deadline, s.next); w == timeOver || w == hurried {
			return
		}
	}
}

// tell sends TERM to members outside the leader's group, and to the group if
// it was sent nothing yet; each once.
func (s *sweep) tell(ms []platform.Stat) bool {
	var alone []platform.Stat
	group := false
	for _, m := range ms {
		switch {
		case m.PGID == s.g.pid:
			group = group || s.groupTold == 0
		case s.told[m.PID] != m.StartTicks:
			s.told[m.PID] = m.StartTicks
			alone = append(alone, m)
		}
	}
	if group {
		s.g.step(syscall.SIGTERM)
		s.groupTold = syscall.SIGTERM
	}
	s.g.signalEach(alone, syscall.SIGTERM)
	return group || len(alone) > 0
}

// Where processors are scarce, what was killed may not have had one to die on when
// Settle is over: it is looked at again each starvedLook, for at most starved.
const (
	starved     = 2 * time.Second
	starvedLook = 20 * time.Millisecond
)

// kill sends KILL to all that is left, again while new members turn up, and
// waits at most Settle for the end, or starved for what is dying.
func (s *sweep) kill() {
	until := time.Now().Add(s.ladder.Settle)
	last := until.Add(starved)
	killed := map[int]uint64{}
	for first := true; !s.settled(); first = false {
		ms := s.g.members()
		for _, m := range ms {
			killed[m.PID] = m.StartTicks
		}
		s.killOnce(first, ms)
		// What was forked meanwhile is killed before anything is waited for.
		ms = s.g.members()
		if slices.ContainsFunc(ms, func(m platform.Stat) bool { return killed[m.PID] != m.StartTicks }) && time.Now().Before(until) {
			continue
		}
		if s.watch.await(ms, s.g.done, until, nil) == timeOver {
			if time.Now().After(last) || !s.dying() {
				return
			}
			until = time.Now().Add(starvedLook)
		}
	}
}

// dying reports whether all that is left only needs a processor to end.
func (s *sweep) dying() bool {
	if !ended(s.g.done) && !platform.Dying(s.g.pid) {
		return false
	}
	return !slices.ContainsFunc(s.g.members(), func(m platform.Stat) bool { return !platform.Dying(m.PID) })
}

func (s *sweep) settled() bool { return s.g.Gone() }

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// killOnce kills the control group or the process group at one stroke, and
// everyone else by himself.
func (s *sweep) killOnce(first bool, ms []platform.Stat) {
	caged := map[int]bool{}
	if s.g.cgroup != nil {
		pids, _ := s.g.cgroup.Procs()
		err := s.g.cgroup.Kill()
		if first {
			s.g.note(syscall.SIGKILL, ToCgroup, 0, err)
		}
		for _, pid := range pids {
			caged[pid] = err == nil
		}
	}
	if s.g.cgroup == nil || !caged[s.g.pid] && !ended(s.g.done) {
		if first {
			s.g.step(syscall.SIGKILL)
		} else {
			_ = s.g.Signal(syscall.SIGKILL)
		}
	}
	var alone []platform.Stat
	for _, m := range ms {
		if !caged[m.PID] && (m.PGID != s.g.pid || s.g.cgroup != nil) {
			alone = append(alone, m)
		}
	}
	s.g.signalEach(alone, syscall.SIGKILL)
}

// empty waits until nothing is left, at most until by (zero: for as long as it
// takes).
func (s *sweep) empty(by time.Time) wake {
	for !s.g.gone() {
		w := s.watch.await(s.g.members(), s.g.done, by, s.next)
		if w == timeOver && s.g.gone() {
			break
		}
		if w == timeOver || w == hurried {
			return w
		}
	}
	return allGone
}

// survivors names what is left, and why as far as it can be told.
func (s *sweep) survivors() []Member {
	var out []Member
	if !ended(s.g.done) {
		if st, err := platform.ReadStat(s.g.pid); err == nil && st.Alive() {
			out = append(out, s.why(st))
		}
	}
	for _, st := range s.g.members() {
		out = append(out, s.why(st))
	}
	return append(out, s.g.strays()...)
}

func (s *sweep) why(st platform.Stat) Member {
	m := Member{PID: st.PID, StartTicks: st.StartTicks, Command: platform.CommandLine(st.PID, 0)}
	switch err := signalMember(st, 0); {
	case err != nil && !errors.Is(err, platform.ErrGone):
		m.Why = err.Error()
	case st.State == 'D':
		m.Why = "in an uninterruptible system call"
	default:
		m.Why = "still alive after KILL, state " + string(st.State)
	}
	return m
}
