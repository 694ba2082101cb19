package pgroup

import (
	"strings"

	"procsup/platform"
)

// A Found is what a scan of all processes shows of one command: Leader is the
// zero Identity when only others of its tree are left.
type Found struct {
	Leader platform.Identity
}

// Left is what one scan of all processes shows of commands of ours. It is for a
// process that comes after the one that started them and knows no numbers.
type Left struct {
	tokens map[string]Found // by the first element
	marks  map[uint64]Found
}

// FindLeft scans all processes once for those that carry a command's token or
// its mark. A server that writes its title over its environment (redis, nginx,
// postgres) has but the mark.
func FindLeft() Left {
	l := Left{tokens: map[string]Found{}, marks: map[uint64]Found{}}
	boot := platform.BootID()
	platform.ScanProcesses(func(st platform.Stat) {
		if !st.Alive() || st.Comm == keeperName {
			return
		}
		id := platform.Identity{BootID: boot, PID: st.PID, StartTicks: st.StartTicks}
		leads := st.SID == st.PID
		if v, ok, err := platform.Environ(st.PID, TokenVar); err == nil && ok {
			first, _, inner := strings.Cut(v, "/")
			l.tokens[first] = l.tokens[first].with(id, leads && !inner)
		}
		if mark := platform.MarkOf(st.PID); mark != 0 {
			l.marks[mark] = l.marks[mark].with(id, leads)
		}
	})
	return l
}

// with is what is known with one more process: the leader is the oldest that
// leads a session, for a daemon of its own is younger.
func (f Found) with(id platform.Identity, leads bool) Found {
	older := f.Leader.PID == 0 || id.StartTicks < f.Leader.StartTicks || id.StartTicks == f.Leader.StartTicks && id.PID < f.Leader.PID
	if leads && older {
		f.Leader = id
	}
	return f
}

// Of is what was found of the command with a token and a mark, 0 = none.
func (l Left) Of(token string, mark uint64) (f Found, ok bool) {
	f, ok = l.tokens[token]
	if mark == 0 || f.Leader.PID != 0 {
		return f, ok
	}
	if byMark, marked := l.marks[mark]; marked {
		return byMark, true
	}
	return f, ok
}

// TakeUpLeft makes a Group of what is left of a command whose leader is gone and
// reaped: its control group, and carriers of its token or mark. The leader's number
// may be a stranger's by now and is not used. Finish ends what is left; then Release.
func TakeUpLeft(r Remote) *Group {
	g := newGroup(r.Session, r.Token)
	g.remote, g.level, g.exit, g.mark = true, Tree, platform.Exit{Code: -1}, r.Mark
	if r.Cgroup != "" {
		if c, err := platform.OpenCgroup(r.Cgroup); err == nil {
			g.cgroup, g.level = c, Cgroup
		}
	}
	close(g.done)
	return g
}

// CgroupHolds reports whether a process is in the control group at a path, ""
// and one that is gone holding none.
func CgroupHolds(path string) bool {
	if path == "" {
		return false
	}
	c, err := platform.OpenCgroup(path)
	if err != nil {
		return false
	}
	populated, err := c.Populated()
	_ = c.Close()
	return err == nil && populated
}
