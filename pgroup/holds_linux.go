package pgroup

import (
	"os"

	"procsup/platform"
)

// Holds reports whether a process belongs to the command's tree, by what the
// kernel tells of it now; one that has ended counts until it is reaped. It is
// cheap where [Group.Members] lists everything.
func (g *Group) Holds(pid int) bool {
	g.mu.Lock()
	reaped := g.reaped
	g.mu.Unlock()
	if reaped {
		return false
	}
	if g.cgroup != nil && platform.InCgroup(pid, g.cgroup.Path()) {
		return true
	}
	self := os.Getpid()
	lives := g.groupLives()
	for depth := 0; depth < 1000 && pid > 1 && pid != self; depth++ {
		if pid == g.pid && (!ended(g.done) || g.pinned()) {
			return true
		}
		st, err := platform.ReadStat(pid)
		if err != nil || st.Comm == keeperName {
			return false
		}
		if lives && g.inGroup(st) || g.known(st) || g.marked(pid) || g.tokenOf(pid) {
			return true
		}
		pid = st.PPID
	}
	return false
}

// tokenOf reports whether a process has the command's token in its environment.
func (g *Group) tokenOf(pid int) bool {
	if g.token == "" {
		return false
	}
	v, ok, err := platform.Environ(pid, TokenVar)
	return err == nil && ok && tokenBelow(v, g.token)
}

// HoldsCgroup reports whether a control group, by its id, is the command's own
// or below it: all that the kernel tells of a process that was reaped.
func (g *Group) HoldsCgroup(id uint64) bool {
	if g.cgroup == nil {
		return false
	}
	own, ok := platform.CgroupID(g.cgroup.Path())
	return ok && own == id
}
