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

// FindByToken scans all processes once for those that carry the token of a
// command of ours, and gives them by the first element of it. It is for a
// process that comes after the one that started them and knows no numbers. A
// command that dropped its environment is not found.
func FindByToken() map[string]Found {
	out := map[string]Found{}
	boot := platform.BootID()
	platform.ScanProcesses(func(st platform.Stat) {
		if !st.Alive() || st.Comm == keeperName {
			return
		}
		v, ok, err := platform.Environ(st.PID, TokenVar)
		if err != nil || !ok {
			return
		}
		first, _, inner := strings.Cut(v, "/")
		f := out[first]
		older := f.Leader.PID == 0 || st.StartTicks < f.Leader.StartTicks
		if !inner && st.SID == st.PID && older { // a daemon of its own is younger
			f.Leader = platform.Identity{BootID: boot, PID: st.PID, StartTicks: st.StartTicks}
		}
		out[first] = f
	})
	return out
}

// TakeUpLeft makes a Group of what is left of a command whose leader is gone and
// reaped: its control group, and carriers of its token. The leader's number may
// be a stranger's by now and is not used. Finish ends what is left; then Release.
func TakeUpLeft(r Remote) *Group {
	g := newGroup(r.Session, r.Token)
	g.remote, g.level, g.exit = true, Tree, platform.Exit{Code: -1}
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
