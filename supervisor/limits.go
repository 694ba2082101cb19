package supervisor

import (
	"fmt"

	"procsup/handles"
	"procsup/platform"
)

// Descriptors that a live handle costs in the supervisor, and what is kept
// free for clients, the journal and spools that are written to at the moment.
const (
	fdsPerRun  = 5 // both pipes twice, for when the keeper dies, and a pidfd
	fdsReserve = 500
)

// limits is how many handles there is room for.
type limits struct {
	max  int
	soft uint64
}

func readLimits(cfg Config) limits {
	platform.RaiseFDLimit()
	soft, _ := platform.FDLimit()
	max := 8
	if soft > fdsReserve+8*fdsPerRun {
		max = int((soft - fdsReserve) / fdsPerRun)
	} else if soft > 64 {
		max = int((soft - 48) / fdsPerRun)
	}
	if cfg.MaxLive > 0 {
		max = min(max, cfg.MaxLive)
	}
	return limits{max: max, soft: soft}
}

// admit refuses a start that would eat into the reserve.
func (l limits) admit(live int) error {
	if live < l.max {
		return nil
	}
	return &handles.Error{
		Code:    handles.CodeFull,
		Message: fmt.Sprintf("%d handles run, which is all that RLIMIT_NOFILE (%d open files, EMFILE) has room for", live, l.soft),
		Hint:    "wait for some to end, or start the daemon with a higher ulimit -n",
	}
}
