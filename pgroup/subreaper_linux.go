package pgroup

import (
	"sync"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// A Subreaper is this process in the role of parent of every orphan below it.
// It is process-wide and for good: a program that embeds pgroup asks for it by
// [BecomeSubreaper]. A nil *Subreaper adopts nothing.
type Subreaper struct {
	// exclusive: this process has no other children than those it tells us
	// of, so an unknown child is an adopted one.
	exclusive bool
	foreign   map[int]uint64 // children that were there before: PID to start ticks; never written again

	// starting is held for reading while a child is started and not yet
	// known, or reaped and still known; for writing while unknown children are
	// looked at.
	starting sync.RWMutex

	mu     sync.Mutex
	known  map[int]uint64 // children that were started here: PID to serial, as a freed PID may come again at once
	serial uint64
	groups int                 // groups started so far
	home   platform.CgroupHome // where cgroups could be made last; zero: not known

	listing asked[[2][]platform.Stat] // see adopted
}

// BecomeSubreaper makes this process adopt orphans. Children it has already
// are never counted to any group. With exclusive the caller promises to start
// every further child through Start or Helper: then an orphan is recognised
// by exclusion, and all dead orphans are reaped. Without it only orphans that
// can be told by their group, session, history or token are touched.
func BecomeSubreaper(exclusive bool) (*Subreaper, error) {
	if err := platform.SetSubreaper(); err != nil {
		return nil, err
	}
	s := &Subreaper{exclusive: exclusive, known: map[int]uint64{}}
	if !platform.HasChildren() { // one system call where listing costs several files
		return s, nil
	}
	s.foreign = map[int]uint64{}
	for _, pid := range platform.Children(unix.Getpid()) {
		if st, err := platform.ReadStat(pid); err == nil {
			s.foreign[pid] = st.StartTicks
		}
	}
	return s, nil
}

// Helper starts a child that belongs to this process itself, by start, so that
// it is neither counted to a command nor reaped here. The caller calls done
// after it has reaped it.
func (s *Subreaper) Helper(start func() (pid int, err error)) (done func(), err error) {
	pid, child, err := s.start(false, start)
	return func() { s.release(pid, child, func() bool { return true }) }, err
}

// start runs f, which starts a child, and makes the child known before anyone
// can take it for an orphan.
func (s *Subreaper) start(group bool, f func() (int, error)) (pid int, child uint64, err error) {
	if s == nil {
		pid, err = f()
		return pid, 0, err
	}
	s.starting.RLock()
	defer s.starting.RUnlock()
	if pid, err = f(); err != nil {
		return pid, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	s.known[pid] = s.serial
	if group {
		s.groups++
	}
	return pid, s.serial, nil
}

// release runs f, which reaps a child, and forgets that if f says so. Meanwhile the list of
// our children is not read: the kernel may skip an entry when the one before it
// goes (get_children_pid in fs/proc/array.c).
func (s *Subreaper) release(pid int, child uint64, f func() bool) bool {
	if s == nil {
		return f()
	}
	s.starting.RLock()
	defer s.starting.RUnlock()
	if !f() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[pid] == child {
		delete(s.known, pid)
	}
	return true
}

// newCgroup makes a cgroup where the last one could be made, or finds the place
// anew: looking for it takes longer than making one.
func (s *Subreaper) newCgroup(name string) (*platform.Cgroup, error) {
	if s == nil {
		return platform.NewCgroup(name)
	}
	s.mu.Lock()
	home := s.home
	s.mu.Unlock()
	if home.Base != "" {
		if c, err := home.New(name); err == nil {
			return c, nil
		}
	}
	home, err := platform.FindCgroup()
	if err != nil {
		return nil, err
	}
	c, err := home.New(name)
	if err == nil {
		s.mu.Lock()
		s.home = home
		s.mu.Unlock()
	}
	return c, err
}

// forgetHome has the place for cgroups looked for again: one could be made and
// not be used.
func (s *Subreaper) forgetHome() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.home = platform.CgroupHome{}
	}
}

// sole reports whether an adopted orphan can only come from the one group
// there has ever been.
func (s *Subreaper) sole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exclusive && s.groups == 1 && len(s.foreign) == 0
}

// adopted lists the children that this process did not start, and apart from
// them the dead ones, unless they were surely nobody else's: those are reaped.
// One that dies between being listed and being looked at leaves its own
// children to us behind the end of the list, so the list is read again until
// none does.
func (s *Subreaper) adopted() (live, dead []platform.Stat) {
	both := s.listing.ask(func() [2][]platform.Stat {
		live, dead := s.list()
		return [2][]platform.Stat{live, dead}
	})
	return both[0], both[1]
}

func (s *Subreaper) list() (live, dead []platform.Stat) {
	s.starting.Lock()
	defer s.starting.Unlock()
	wasDead := map[int]bool{}
	for again := true; again; {
		again, live, dead = false, nil, nil
		for _, pid := range platform.AdoptedChildren() {
			if s.isKnown(pid) {
				continue
			}
			st, err := platform.ReadStat(pid)
			switch {
			case err == nil && s.isForeign(st):
				continue
			case err == nil && st.Alive():
				live = append(live, st)
				continue
			}
			again = again || !wasDead[pid]
			wasDead[pid] = true
			if err == nil && !(s.exclusive && platform.ReapIfEnded(pid)) {
				dead = append(dead, st)
			}
		}
	}
	return live, dead
}

// Reap reaps adopted children that have ended; the owner of the process calls
// it on SIGCHLD. Children started by this process are left to their waiters.
// It does nothing unless exclusive was promised.
func (s *Subreaper) Reap() {
	if s == nil || !s.exclusive {
		return
	}
	for {
		pid := platform.FirstZombie()
		if pid == 0 {
			return
		}
		if !s.reapUnknown(pid) {
			s.adopted() // the kernel would show the known one for ever
			return
		}
	}
}

func (s *Subreaper) reapUnknown(pid int) bool {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.isKnown(pid) {
		return false
	}
	st, err := platform.ReadStat(pid)
	return err == nil && !s.isForeign(st) && platform.ReapIfEnded(pid)
}

// reapMember reaps, through its pidfd, a dead member of a tree if this process
// adopted it; one that is not our child is left to its parent.
func (s *Subreaper) reapMember(pid, pidfd int) {
	if s == nil {
		return
	}
	s.starting.Lock()
	defer s.starting.Unlock()
	if !s.isKnown(pid) {
		platform.ReapPidfd(pidfd)
	}
}

func (s *Subreaper) isKnown(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[pid]
	return ok
}

func (s *Subreaper) isForeign(st platform.Stat) bool {
	ticks, ok := s.foreign[st.PID]
	return ok && ticks == st.StartTicks
}
