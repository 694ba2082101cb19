package pgroup

import "procsup/platform"

// Siblings are the children of a subreaper that is the parent of commands which
// this process has taken up: all orphans of their trees become its children, so
// that no others have to be looked at.
type Siblings struct {
	parent  int
	leader  func(pid int) bool
	listing asked[[]platform.Stat]
}

// NewSiblings is for the children of a process. leader reports whether one is the
// leader of a command; it is called often.
func NewSiblings(parent int, leader func(pid int) bool) *Siblings {
	return &Siblings{parent: parent, leader: leader}
}

// orphans lists the living children that lead no command. One that dies between
// being listed and being looked at leaves its children behind the end of the list,
// so it is read again until none does.
func (s *Siblings) orphans() []platform.Stat {
	return s.listing.ask(func() (live []platform.Stat) {
		wasDead := map[int]bool{}
		for again := true; again; {
			again, live = false, nil
			for _, pid := range platform.Children(s.parent) {
				if s.leader(pid) {
					continue
				}
				if st, err := platform.ReadStat(pid); err == nil && st.Alive() {
					live = append(live, st)
				} else {
					again = again || !wasDead[pid]
					wasDead[pid] = true
				}
			}
		}
		return live
	})
}

// addOrphans adds the descendants of the leader, and of the orphans that its
// parent has adopted from it.
func (f *finder) addOrphans() {
	g := f.g
	if !ended(g.done) { // a zombie has no children
		f.addTree(g.pid)
	}
	for _, st := range g.siblings.orphans() {
		if st.Comm != keeperName && (g.known(st) || g.inGroup(st) && g.groupLives() || g.marked(st.PID) || f.hasToken(st.PID)) {
			f.add(st)
			f.addTree(st.PID)
		}
	}
}
