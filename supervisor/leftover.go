package supervisor

import (
	"time"

	"procsup/pgroup"
)

// finish sees to what outlives the leader of a run. With policy wait that may
// take for ever, so a stop that comes too late to cut the run short, or an alarm,
// ends the waiting and what is waited for; the ending stays the leader's own.
func (r *run) finish(g *pgroup.Group, linger time.Duration, deadline, quiet <-chan time.Time) pgroup.Report {
	policy := leftover(r.spec)
	if policy != pgroup.Wait {
		return g.Finish(policy, linger, ladder(r.spec), r.hurry)
	}
	next, done := make(chan struct{}), make(chan struct{})
	defer close(done)
	go r.interrupt(next, done, deadline, quiet) // ends with done
	return g.Finish(policy, linger, ladder(r.spec), next)
}

// interrupt gives the first of all reasons to wait no longer to a Finish, and
// after that only what is to make it go on to its next step.
func (r *run) interrupt(next chan<- struct{}, done <-chan struct{}, deadline, quiet <-chan time.Time) {
	late := r.late
	for {
		select {
		case <-late:
		case <-deadline:
		case <-quiet:
			if left := r.quietFor(); left > 0 {
				quiet = time.After(left)
				continue
			}
		case <-r.hurry:
		case <-done:
			return
		}
		late, deadline, quiet = nil, nil, nil
		select {
		case next <- struct{}{}:
		case <-done:
			return
		}
	}
}

// quietFor is how long a run may still say nothing.
func (r *run) quietFor() time.Duration {
	return millis(r.spec.NoOutputMS) - time.Since(r.lastHeard())
}

// quietAlarm fires when a run may have been quiet for too long; never where nobody
// hears it any more, as its pipes died with keeper and supervisor.
func (r *run) quietAlarm() <-chan time.Time {
	if r.log == nil {
		return nil
	}
	return newAlarm(r.spec.NoOutputMS, r.lastHeard())
}

// lastHeard is when a run last wrote something, or began.
func (r *run) lastHeard() time.Time { return later(r.rec.StartedAt, r.log.LastActivity()) }
