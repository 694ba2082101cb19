//go:build !linux

package pgroup

import "procsup/platform"

// Usage is what the leader used. It blocks until Done.
func (g *Group) Usage() (platform.Usage, error) {
	<-g.done
	return g.use, nil
}
