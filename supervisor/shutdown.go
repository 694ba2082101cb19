package supervisor

import (
	"context"
	"fmt"
	"os"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
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

// ShutdownAll is Shutdown for a caller who wants to know what became of
// everything: bounded by the graces and a moment. handles.ErrOwed when nothing
// may run or be owed and something does or is; then nothing was done.
func (s *Supervisor) ShutdownAll(ctx context.Context, req wire.Shutdown) (*wire.DaemonReport, error) {
	e, err := endingOf(wire.EndSession{GraceMS: req.GraceMS, Reason: req.Reason, By: "host"}, "shutdown", "the daemon shuts down")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if n, owed := len(s.runs), s.owed; req.RequireIdle && n+owed > 0 {
		s.mu.Unlock()
		return nil, &handles.Error{
			Code: handles.CodeOwed, Message: fmt.Sprintf("the daemon is not idle: %d handles live, %d ends are owed", n, owed),
			Hint: "procsup list and procsup session list show whose they are",
		}
	}
	s.draining = true
	live := make([]*run, 0, len(s.runs))
	for _, r := range s.runs {
		live = append(live, r)
	}
	s.mu.Unlock()
	for _, r := range live {
		s.decide(r, e.decision(r))
	}
	ctx = context.WithoutCancel(ctx) // begun is done, whoever goes on listening
	rep := &wire.SessionReport{Ended: []handles.ID{}, StillActive: []handles.ID{}, StillRunning: []handles.Process{}}
	s.awaitEnds(ctx, live, e, rep)
	s.mu.Lock()
	defer s.mu.Unlock()
	return &wire.DaemonReport{Error: rep.Error, Ended: rep.Ended, StillActive: rep.StillActive, StillRunning: rep.StillRunning, Owed: s.owed}, nil
}

// endsWhile is endsBy the bound, for a caller who may leave before: that hurries
// nothing.
func (r *run) endsWhile(caller, bound context.Context) bool {
	select {
	case <-r.over:
		return true
	case <-caller.Done():
		return false
	case <-bound.Done():
		return r.endsBy(bound)
	}
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
