package pgroup

import "procsup/platform"

// strays lists what left the process group of a command at level Grp: it is
// out of reach there, but not to be kept silent about. They are told by the
// token in their environment, so one that dropped it is not seen.
func (g *Group) strays() []Member {
	if g.level != Grp || g.remote || g.token == "" {
		return nil
	}
	since := g.startTicks()
	var out []Member
	platform.ScanProcesses(func(st platform.Stat) {
		if st.StartTicks < since || g.inGroup(st) || !st.Alive() {
			return
		}
		v, ok, err := platform.Environ(st.PID, TokenVar)
		if err != nil || !ok || !tokenBelow(v, g.token) {
			return
		}
		out = append(out, Member{
			PID: st.PID, StartTicks: st.StartTicks, Command: platform.CommandLine(st.PID, 0),
			Why: "left the process group, which is all that level group can reach",
		})
	})
	return out
}

func (g *Group) startTicks() uint64 {
	if id, err := g.Identity(); err == nil {
		return id.StartTicks
	}
	return 0
}
