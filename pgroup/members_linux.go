package pgroup

import (
	"os"
	"time"

	"procsup/platform"
)

// members lists the live processes of the tree other than the leader, by
// every means the level allows. A process that is ending is not listed.
// After Reap there is nothing to tell it by.
func (g *Group) members() []platform.Stat {
	g.mu.Lock()
	reaped := g.reaped
	g.mu.Unlock()
	if reaped {
		return nil
	}
	f := finder{g: g, got: map[int]bool{g.pid: true, os.Getpid(): true}}
	if g.cgroup != nil {
		f.addCgroup()
	}
	switch {
	case g.remote && g.siblings != nil:
		f.addOrphans()
	case g.remote:
		f.addRemote()
	case g.sub != nil:
		if !ended(g.done) { // a zombie has no children
			f.addTree(g.pid)
		}
		f.addAdopted()
	case g.cgroup == nil && g.groupLives():
		f.addGroup()
	}
	g.remember(f.out)
	return f.out
}

// gone reports whether nothing of the tree is left besides the leader. An empty
// answer is sure: see Subreaper.adopted and Subreaper.release. Only a host
// program that reaps children itself can spoil one reading (proc(5), children).
func (g *Group) gone() bool {
	if g.cgroup != nil {
		if populated, err := g.cgroup.Populated(); err == nil && populated && ended(g.done) {
			return false
		}
	}
	if len(g.members()) > 0 {
		return false
	}
	return g.sub == nil || g.sub.exclusive || len(g.members()) == 0
}

// Gone reports whether the leader has ended and nothing of the tree is left.
func (g *Group) Gone() bool { return ended(g.done) && g.gone() }

// Members lists the live processes of the tree other than the leader.
func (g *Group) Members() []Member { return describe(g.members()) }

func describe(ms []platform.Stat) []Member {
	var out []Member
	for _, m := range ms {
		out = append(out, Member{PID: m.PID, StartTicks: m.StartTicks, Command: platform.CommandLine(m.PID, 0)})
	}
	return out
}

// remember keeps who belongs to the tree, and the sessions and groups that
// they made: what is left of a member that ended is known by those.
func (g *Group) remember(ms []platform.Stat) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range ms {
		g.seen[m.PID] = m.StartTicks
		if m.SID != g.base && g.base != 0 || m.SID == m.PID {
			g.homes[m.SID] = true
		}
		if m.PGID == m.PID {
			g.homes[m.PGID] = true
		}
	}
}

// known reports whether a process was seen in the tree before, or lives in a
// session or group that one made who was.
func (g *Group) known(st platform.Stat) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ticks, ok := g.seen[st.PID]
	return ok && ticks == st.StartTicks || g.homes[st.PGID] || g.homes[st.SID]
}

// owns decides whether an orphan that this process adopted comes from the
// command: seen below it before, in a group or session of its own, by
// exclusion where nothing else could have left it, or by the token in its
// environment.
func (g *Group) owns(st platform.Stat) bool {
	if g.known(st) || g.sub.sole() || g.inGroup(st) && g.groupLives() || g.marked(st.PID) {
		return true
	}
	if g.token == "" {
		return false
	}
	v, ok, err := platform.Environ(st.PID, TokenVar)
	return err == nil && ok && tokenBelow(v, g.token)
}

// marked reports whether a process has the command's mark, which it keeps
// whatever it does to its session, its parent and its environment.
func (g *Group) marked(pid int) bool { return g.mark != 0 && platform.MarkOf(pid) == g.mark }

// inGroup reports whether a process is in the group or session that bears the
// leader's number.
func (g *Group) inGroup(st platform.Stat) bool {
	return st.PGID == g.pid || g.session && st.SID == g.pid
}

// keeperName is what a procsup daemon's keeper calls itself. A sweep never
// enters a keeper or what is below it: a daemon that was started inside a run
// belongs to its user, not to the run.
const keeperName = "procsup-keep"

// A finder collects the live processes of a tree, each once.
type finder struct {
	g   *Group
	got map[int]bool
	out []platform.Stat
}

func (f *finder) add(st platform.Stat) {
	if f.got[st.PID] || st.Comm == keeperName {
		return
	}
	f.got[st.PID] = true
	if st.Alive() {
		f.out = append(f.out, st)
	}
}

func (f *finder) addPID(pid int) {
	if f.got[pid] {
		return
	}
	if st, err := platform.ReadStat(pid); err == nil {
		f.add(st)
	}
}

func (f *finder) addCgroup() {
	if populated, err := f.g.cgroup.Populated(); err == nil && !populated { // one read, where a list takes two directories
		return
	}
	pids, err := f.g.cgroup.Procs()
	if err != nil {
		return
	}
	for _, pid := range pids {
		if pid > 1 { // 0: in another pid namespace
			f.addPID(pid)
		}
	}
}

// addTree adds every descendant of a process.
func (f *finder) addTree(root int) {
	todo := []int{root}
	walked := map[int]bool{}
	for len(todo) > 0 {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if walked[pid] {
			continue
		}
		walked[pid] = true
		for _, c := range platform.Children(pid) {
			if st, err := platform.ReadStat(c); err == nil && st.Comm != keeperName {
				f.add(st)
				todo = append(todo, c)
			}
		}
	}
}

// An orphan that is just ending cannot be told any more by what it had, and its
// children are not ours yet: it is looked at again until it is dead, for at most
// exitWait, in pauses that begin with exitPause and double.
const (
	exitPause = 50 * time.Microsecond
	exitWait  = 200 * time.Millisecond
)

// addAdopted adds the orphans that are ours with all below them, and reaps the
// dead ones.
func (f *finder) addAdopted() {
	for pause := exitPause; !f.addAdoptedOnce() && pause <= exitWait/2; pause *= 2 {
		time.Sleep(pause) // nothing tells the end of what may be another's child
	}
}

// addAdoptedOnce reports false when somebody who is ending may leave more.
func (f *finder) addAdoptedOnce() (sure bool) {
	live, dead := f.g.sub.adopted()
	sure = true
	for _, st := range live {
		switch {
		case st.Comm == keeperName:
		case f.g.owns(st):
			f.add(st)
			f.addTree(st.PID)
		case platform.Exiting(st.PID):
			sure = false
		}
	}
	f.reapOwn(dead)
	return sure
}

func (f *finder) reapOwn(dead []platform.Stat) {
	for _, st := range dead {
		if f.g.owns(st) {
			f.g.sub.reapUnknown(st.PID)
		}
	}
}

func (f *finder) addGroup() {
	platform.ScanProcesses(func(st platform.Stat) {
		if st.PGID == f.g.pid {
			f.add(st)
		}
	})
}
