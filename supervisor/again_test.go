package supervisor

import (
	"testing"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// S3-12, S2-29, S4-46: a cancel whose answer was lost is asked for again under
// its key and gets the first answer: at once, after the end, and from the
// journal of a process that is gone. Another request did not end the run.
func TestS2_29_ARepeatedCancelGetsTheFirstAnswer(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	a := mustStart(t, s, sh("sleep 600"))
	id := string(a.HandleID)
	mine := wire.Cancel{Idempotency: "k"}
	cancel := func(req wire.Cancel, want bool) *handles.Record {
		t.Helper()
		c, err := s.Cancel(t.Context(), id, "", req)
		if err != nil || c.Cancelled != want {
			t.Fatalf("cancel %+v: %+v, %v, want cancelled %v", req, c, err, want)
		}
		return c.Record
	}
	early := mine
	early.NoWait = true
	if _, err := s.Cancel(t.Context(), id, "", early); err != nil { // the answer is lost
		t.Fatal(err)
	}
	first := cancel(mine, true) // it may be stopping still, or over
	cancel(mine, true)
	cancel(wire.Cancel{Idempotency: "another"}, false)
	cancel(wire.Cancel{}, false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	if rec := cancel(mine, true); rec.Stop.ID != first.Stop.ID || rec.Revision != first.Revision {
		t.Errorf("got %+v, want %+v", rec.Stop, first.Stop)
	}
	cancel(wire.Cancel{}, false)
	if rows := stops(t, s, a.HandleID); len(rows) != 1 {
		t.Errorf("stop rows %v", rows)
	}
}

// A repeat claims nothing for a request that came too late: a run that had
// ended, or that somebody else had stopped.
func TestARepeatedCancelClaimsNothing(t *testing.T) {
	s := open(t, Config{})
	over := mustStart(t, s, sh("exit 0"))
	mustWait(t, s, over.HandleID)
	host := mustStart(t, s, sh("sleep 600"))
	s.decide(s.live(host.HandleID), kinds["evict"])
	for name, id := range map[string]handles.ID{"over": over.HandleID, "stopped by the host": host.HandleID} {
		for range 2 {
			if c, err := s.Cancel(t.Context(), string(id), "", wire.Cancel{Idempotency: "k"}); err != nil || c.Cancelled {
				t.Errorf("%s: %+v, %v", name, c, err)
			}
		}
	}
}
