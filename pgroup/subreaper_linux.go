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
	// known, for writing while unknown children are looked at.
	starting sync.RWMutex

	mu     sync.Mutex
	known  map[int]*Group // children that were started here; nil: a helper
	groups int            // groups started so far
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
	s := &Subreaper{exclusive: exclusive, known: map[int]*Group{}}
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
	pid, err := s.start(nil, start)
	return func() { s.disown(pid) }, err
}

// start runs f, which starts a child, and makes the child known before anyone
// can take it for an orphan.
func (s *Subreaper) start(g *Group, f func() (int, error)) (int, error) {
	if s == nil {
		return f()
	}
	s.starting.RLock()
	defer s.starting.RUnlock()
	pid, err := f()
	if err != nil {
		return pid, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[pid] = g
	if g != nil {
		s.groups++
	}
	return pid, nil
}

func (s *Subreaper) disown(pid int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, pid)
}

// sole reports whether an adopted orphan can only come from the one group
// there has ever been.
func (s *Subreaper) sole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exclusive && s.groups == 1 && len(s.foreign) == 0
}

// adopted lists the live children that this process did not start. Dead ones
// are reaped if they are surely nobody else's.
func (s *Subreaper) adopted() []platform.Stat {
	s.starting.Lock()
	defer s.starting.Unlock()
	var out []platform.Stat
	for _, pid := range platform.AdoptedChildren() {
		if s.isKnown(pid) {
			continue
		}
		st, err := platform.ReadStat(pid)
		switch {
		case err != nil || s.isForeign(st):
		case st.Alive():
			out = append(out, st)
		case s.exclusive:
			platform.ReapIfEnded(pid)
		}
	}
	return out
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
	return !s.isKnown(pid) && platform.ReapIfEnded(pid)
}

// reapMember reaps a member of a tree that this process adopted, once it is
// dead; a process that is not our child is left to its parent.
func (s *Subreaper) reapMember(pid int) {
	if s == nil {
		return
	}
	s.starting.Lock()
	defer s.starting.Unlock()
	if !s.isKnown(pid) {
		platform.ReapIfEnded(pid)
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
