package pgroup

import (
	"procsup/platform"
)

// leaveCgroup removes the control group. What is left in it, by the caller's
// wish or because it could not be ended, goes to the group above.
func (g *Group) leaveCgroup() {
	if populated, err := g.cgroup.Populated(); err == nil && populated {
		_ = g.cgroup.MoveOut()
	}
	_ = g.cgroup.Remove()
}

// Reap frees the leader's number and the control group, and returns how the
// leader ended. It blocks until Done and ends nothing: see Stop and Finish,
// which must have returned. Calling it again is an error. If the host program
// reaped the leader, against the rules, the error wraps ECHILD, unless the
// kernel still tells how it ended.
func (g *Group) Reap() (End, error) {
	<-g.done
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return End{}, ErrReaped
	}
	g.reaped = true
	end := End{Exit: g.exit}
	err := g.taken
	if err == nil && !g.pinned() { // wait4(2) goes by the number
		err = errReapedElsewhere
	}
	g.children.release(g.pid, g.child, func() bool {
		if err == nil {
			end.Exit, end.Usage, err = platform.Reap(g.pid)
		}
		return true
	})
	g.pidfd.Close()
	if end.Usage.MaxRSS <= g.spawner {
		end.Usage.MaxRSS = 0 // inherited at exec, not the command's own
	}
	if g.cgroup != nil {
		if peak, err := g.cgroup.MemoryPeak(); err == nil {
			end.Usage.MaxRSS = peak
		}
		g.leaveCgroup()
	}
	if err != nil {
		end.Exit = g.exit
		if g.exitKnown { // seen before, or still told by the kernel
			err = nil
		}
	}
	return end, err
}
