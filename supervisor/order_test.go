package supervisor

import (
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// S4-28, S4-40: a run whose end was seen and is not saved yet, and a newer one
// that runs: a stop of everything names the newer alone. The older keeps its
// name until its end is saved, so no name ever means both.
func TestS4_40_TheNewerIsNamed(t *testing.T) {
	g := newGate("settle")
	s := open(t, Config{Hooks: g.hooks()})
	req := sh("exit 3")
	req.Name = "web"
	older := mustStart(t, s, req)
	<-g.reached // over, and not saved
	rec, err := s.Show(t.Context(), "web", "t")
	if err != nil || rec.HandleID != older.HandleID || rec.Liveness != "exited" {
		t.Errorf("it still has its name: %+v, %v", rec, err)
	}
	if _, err := s.Start(t.Context(), req); err == nil {
		t.Error("the name was given twice")
	}
	newer := mustStart(t, s, sh("sleep 600"))
	s.stopAll(kinds["evict"])
	close(g.open)
	got := mustWait(t, s, newer.HandleID)
	if rows := stops(t, s, newer.HandleID); len(rows) != 1 || rows[0]["cuts"] != string(newer.HandleID) || got.Status != handles.Killed {
		t.Errorf("the newer: %v, %+v", rows, got)
	}
	if rec := mustWait(t, s, older.HandleID); rec.Status != handles.Failed || *rec.ExitCode != 3 || rec.Ending != "" {
		t.Errorf("the older: %+v", rec)
	}
	if rows := stops(t, s, older.HandleID); len(rows) != 0 {
		t.Errorf("the older was stopped: %v", rows)
	}
	again := sh("sleep 600")
	again.Name = "web"
	next := mustStart(t, s, again)
	c, err := s.Cancel(t.Context(), "web", "t", wire.Cancel{})
	if err != nil || !c.Cancelled || c.Record.HandleID != next.HandleID {
		t.Errorf("a stop by name: %+v, %v", c, err)
	}
}

// S4-09, S4-05: under a flood of output a stop gets to its signal without a wait
// of its own: 50 ms at most. A wait would be in every one of them, the machine's
// other work is not: so the quickest counts.
func TestS4_09_AStopUnderLoadDoesNotWait(t *testing.T) {
	s := open(t, Config{})
	const flood = "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done"
	quickest := time.Hour
	for range 6 {
		var started []*wire.Started
		for range 2 {
			a := mustStart(t, s, sh(flood))
			if w, err := s.WaitOutput(t.Context(), string(a.HandleID), "", wire.WaitOutput{Pattern: "y"}); err != nil || w.Status != wire.Matched {
				t.Fatalf("%+v, %v", w, err)
			}
			started = append(started, a)
		}
		for _, a := range started {
			asked := time.Now()
			c, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{})
			if err != nil || !c.Cancelled || len(c.Record.Cleanup.Signals) == 0 {
				t.Fatalf("%+v, %v", c, err)
			}
			signalled := c.Record.StartedAt.Add(time.Duration(c.Record.Cleanup.Signals[0].AtMS * float64(time.Millisecond)))
			quickest = min(quickest, signalled.Sub(asked))
		}
	}
	t.Logf("%v from the request to the signal", quickest)
	if quickest > 50*time.Millisecond {
		t.Errorf("the quickest of 12 stops took %v to its signal", quickest)
	}
}
