package pgroup

import "procsup/platform"

// Usage is what the leader used, and the children it waited for, once it has
// ended and as long as it was not reaped. MaxRSS is 0 when it cannot be told
// from our own size at the spawn.
func (g *Group) Usage() (platform.Usage, error) {
	<-g.done
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return platform.Usage{}, ErrReaped
	}
	u, err := platform.PeekUsage(g.pid)
	if u.MaxRSS <= g.spawner {
		u.MaxRSS = 0
	}
	return u, err
}
