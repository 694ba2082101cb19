package supervisor

import (
	"errors"
	"strings"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/keeper"
	"procsup/supervisor/outcome"
	"procsup/supervisor/wire"
)

// unknownStart is the error of a run that the keeper holds and the journal does
// not know: commits were lost with a torn or deleted journal.
const unknownStart = "the journal has lost how it was started: command and times are what its process showed when it was found"

// recoverHeld is for what the keeper holds of a run that is not unfinished in
// the journal. One that has ended there is let go. One that is not in it is
// owned again: dropping it would close its pipes and leave it to nobody.
func (s *Supervisor) recoverHeld(k keeper.Run) error {
	_, err := s.journal.Run(k.ID)
	lost := errors.Is(err, handles.ErrNotFound)
	if err != nil && !lost {
		return err
	}
	if !lost || k.StartTicks == 0 && !k.Pending && k.Exit == nil {
		drop(k)
		if err := s.cfg.Keeper.Settled(k.ID); err != nil {
			s.log.Error("settle with keeper", "id", k.ID, "err", err)
		}
		return nil
	}
	s.log.Error("a run that the journal does not know is taken up", "id", k.ID, "pid", k.PID)
	r := s.foundling(k)
	return s.takeUp(r, k)
}

// foundling makes a run of what the keeper and the process itself tell.
func (s *Supervisor) foundling(k keeper.Run) *run {
	text := platform.CommandLine(k.PID, 0)
	if text == "" {
		text = "(unknown)"
	}
	spec := wire.Start{Command: strings.Fields(text), Dir: "/", Session: DefaultSession, Lease: LeaseService, NoStoreEnv: true}
	started := time.Now().UTC()
	if k.Exit != nil && k.Exit.At.Before(started) {
		started = k.Exit.At.UTC()
	}
	s.mu.Lock()
	sess := s.session(spec.Session)
	s.mu.Unlock()
	r := newRun(s, handles.ID(k.ID), spec, sess)
	r.told = true
	r.rec = handles.Record{
		HandleID: r.id, Kind: "handle", SessionID: spec.Session, Command: spec.Command, Descriptor: text, Dir: spec.Dir,
		Status: handles.Starting, Error: unknownStart, Liveness: string(platform.Unverifiable), Lease: spec.Lease, Lifetime: "session",
		Delivery: handles.DeliveryNone, StartedAt: started, Cleanup: outcome.NoCleanup(),
	}
	s.mu.Lock()
	if !sess.stored {
		s.writeSession(sess, "session_open", false)
	}
	s.join(r)
	commit := s.write(r, "found", nil)
	s.mu.Unlock()
	if err := commit.Wait(); err != nil {
		s.log.Error("record what was found", "id", r.id, "err", err)
	}
	return r
}
