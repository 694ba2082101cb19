package supervisor

import (
	"context"
	"time"
)

// paceMost bounds how many datagrams of one run may write to the journal in a
// second: one that says READY=1 and RELOADING=1 in a loop waits in its socket's
// queue instead of filling the disk.
const paceMost = 50

// A pace counts what was done in a second. The zero pace is ready for use.
type pace struct {
	since time.Time
	n     int
}

// step counts one, and waits for the next second when there were too many in
// this one. False: the context ended.
func (p *pace) step(ctx context.Context) bool {
	now := time.Now()
	if now.Sub(p.since) >= time.Second {
		p.since, p.n = now, 0
	}
	if p.n++; p.n <= paceMost {
		return true
	}
	timer := time.NewTimer(time.Second - now.Sub(p.since))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
