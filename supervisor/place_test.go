package supervisor

import (
	"errors"
	"testing"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// S1-51, S4-41: the place of an end in the inbox is set aside at the admission:
// when ends that are owed and ends to come fill it, a start is refused before
// anything is spawned, and every end that was promised a place gets it.
func TestS1_51_APlaceIsKeptForEachEnd(t *testing.T) {
	s := open(t, Config{})
	const live = 3
	var alive []*wire.Started
	for range live {
		alive = append(alive, mustStart(t, s, sh("exec sleep 600")))
	}
	for range wire.InboxSize - live {
		mustWait(t, s, mustStart(t, s, wire.Start{Command: []string{"/bin/true"}, Session: "t"}).HandleID)
	}
	if _, err := s.Start(t.Context(), sh("exec sleep 600")); !errors.Is(err, handles.ErrInboxFull) {
		t.Errorf("one more than there are places: %v", err)
	}
	s.mu.Lock()
	n := len(s.runs)
	s.mu.Unlock()
	if n != live {
		t.Errorf("%d run, want %d: the refused one was started", n, live)
	}
	service := sh("exit 0")
	service.Lease = LeaseService
	mustWait(t, s, mustStart(t, s, service).HandleID) // it owes nothing
	for _, a := range alive {
		if c, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{}); err != nil || !c.Cancelled {
			t.Errorf("%+v, %v", c, err)
		}
	}
	p, err := s.Pending(t.Context(), "t", false)
	if err != nil || p.Count != wire.InboxSize {
		t.Errorf("%+v, %v: want every end of %d", p, err, wire.InboxSize)
	}
}
