package supervisor

import (
	"fmt"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// Descriptors that a live handle costs in the supervisor, and what is kept
// free for clients, the journal and spools that are written to at the moment.
const (
	fdsPerRun  = 3 // both pipes and a pidfd
	fdsReserve = 500
)

// limits is what there is room for.
type limits struct {
	max    int // descriptors of all live handles
	most   int // handles, whatever they cost; 0 = no limit
	soft   uint64
	cgroup bool // cgroups can be made: each costs a descriptor
}

func readLimits(cfg Config) limits {
	platform.RaiseFDLimit()
	soft, _ := platform.FDLimit()
	l := limits{max: 8 * fdsPerRun, most: cfg.MaxLive, soft: soft}
	if soft > fdsReserve+8*fdsPerRun {
		l.max = int(soft - fdsReserve)
	} else if soft > 64 {
		l.max = int(soft - 48)
	}
	home, err := platform.FindCgroup()
	l.cgroup = err == nil && home.Writable
	return l
}

// cost is how many descriptors a handle takes for as long as it lives.
func (l limits) cost(spec wire.Start) int {
	n := fdsPerRun + newReadying(spec).extra()
	level, _ := pgroup.ParseLevel(spec.Containment) // checked at admission
	if l.cgroup && (level == pgroup.Auto || level == pgroup.Cgroup) {
		n++
	}
	return n
}

// admit refuses a start that would eat into the reserve.
func (l limits) admit(live, used, cost int) error {
	if used+cost <= l.max && (l.most == 0 || live < l.most) {
		return nil
	}
	return &handles.Error{
		Code:    handles.CodeFull,
		Message: fmt.Sprintf("%d handles run, which is all that RLIMIT_NOFILE (%d open files, EMFILE) has room for", live, l.soft),
		Hint:    "wait for some to end, or start the daemon with a higher ulimit -n",
	}
}
