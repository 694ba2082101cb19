package supervisor

import (
	"context"
	"os"
	"time"

	"procsup/handles"
)

// A ShutdownReport says what a shutdown ended and what it could not end.
type ShutdownReport struct {
	Ended []handles.ID `json:"ended"`
	Still []handles.ID `json:"still_active"` // not ended when the time was over
}

// Shutdown closes the supervisor to new work and ends every command, within
// the context's deadline. Ends that are owed stay owed. Close must follow.
func (s *Supervisor) Shutdown(ctx context.Context) ShutdownReport {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	var rep ShutdownReport
	for _, r := range s.stopAll(decision{kind: "shutdown", cause: handles.CauseShutdown, by: "host", reason: "the daemon shuts down"}) {
		if r.endsBy(ctx) {
			rep.Ended = append(rep.Ended, r.id)
		} else {
			rep.Still = append(rep.Still, r.id)
		}
	}
	return rep
}

// endsBy waits for the end of a run. When the time is over its grace is, too:
// it is killed, and gets a moment to be settled.
func (r *run) endsBy(ctx context.Context) bool {
	select {
	case <-r.over:
		return true
	case <-ctx.Done():
	}
	moment := time.NewTimer(time.Second)
	defer moment.Stop()
	for {
		select {
		case <-r.over:
			return true
		case r.hurry <- struct{}{}: // to the next step, and the one after
		case <-moment.C:
			return false
		}
	}
}

// Dir is the state directory.
func (s *Supervisor) Dir() string { return s.cfg.Dir }

func pid() int { return os.Getpid() }
