package supervisor

import (
	"context"
	"errors"
	"sync"
	"testing"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// A watched context tells when a call has begun to wait with it: a cancel does
// so once it has decided.
type watched struct {
	context.Context
	once    sync.Once
	waiting chan struct{}
}

func watch(t *testing.T) *watched {
	return &watched{Context: t.Context(), waiting: make(chan struct{})}
}

func (w *watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waiting) })
	return w.Context.Done()
}

// restart asks for one and returns once it waits for the end.
func restart(t *testing.T, s *Supervisor, id handles.ID) <-chan error {
	t.Helper()
	ctx, done := watch(t), make(chan error, 1)
	go func() { // ends with the run
		_, err := s.Restart(ctx, string(id), "", wire.Cancel{})
		done <- err
	}()
	<-ctx.waiting
	return done
}

// A22: two restarts of one run make one new copy: the second finds it stopped.
func TestA22_TwoRestartsMakeOneCopy(t *testing.T) {
	g := newGate("settle")
	s := open(t, Config{Hooks: g.hooks()})
	a := mustStart(t, s, sh("sleep 600"))
	one, two := restart(t, s, a.HandleID), restart(t, s, a.HandleID)
	close(g.open)
	if err := <-one; err != nil {
		t.Error(err)
	}
	if err := <-two; !errors.Is(err, handles.ErrConflict) {
		t.Errorf("the second: %v", err)
	}
	l, err := s.List(t.Context(), journal.Filter{LiveOnly: true})
	if err != nil || len(l.Handles) != 1 || l.Handles[0].Parent != string(a.HandleID) {
		t.Errorf("%d copies: %+v, %v", len(l.Handles), l.Handles, err)
	}
}

// A stop beats a pending restart, whatever reason it gives, and also one that
// comes while the run is on its way out.
func TestA22_AStopBeatsARestart(t *testing.T) {
	g := newGate("settle")
	s := open(t, Config{Hooks: g.hooks()})
	a := mustStart(t, s, sh("sleep 600"))
	d := kinds["session_close"]
	d.reason = "restart"
	if _, cut := s.decide(s.live(a.HandleID), d); !cut {
		t.Fatal("not stopped")
	}
	again := restart(t, s, a.HandleID)
	close(g.open)
	if err := <-again; !errors.Is(err, handles.ErrConflict) {
		t.Errorf("restart: %v", err)
	}
	if l, err := s.List(t.Context(), journal.Filter{LiveOnly: true}); err != nil || len(l.Handles) != 0 {
		t.Errorf("%+v, %v", l, err)
	}
}

// What may not be all gone is not followed by a second copy; what ended by
// itself, or by this restart, is.
func TestA22_WhatMayFollow(t *testing.T) {
	for name, c := range map[string]struct {
		cancelled bool
		status    handles.Status
		stop      *handles.Stop
		want      bool
	}{
		"not over":           {false, handles.Stopping, &handles.Stop{}, false},
		"over by itself":     {false, handles.Failed, nil, true},
		"over by us":         {true, handles.Killed, &handles.Stop{Answer: "took"}, true},
		"something is left":  {false, handles.Killed, &handles.Stop{Answer: "unconfirmed"}, false},
		"cannot be verified": {false, handles.Lost, &handles.Stop{Answer: "unconfirmed"}, false},
		"by somebody else":   {false, handles.Killed, &handles.Stop{Answer: "took", Reason: "restart"}, false},
	} {
		err := mayFollow(&wire.Cancelled{Cancelled: c.cancelled, Record: &handles.Record{HandleID: "hto-1", Status: c.status, Stop: c.stop}})
		if (err == nil) != c.want || err != nil && !errors.Is(err, handles.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A restart that would not be admitted is refused before the run is ended
// (S1-51).
func TestS1_51_RefusedRestartEndsNothing(t *testing.T) {
	s := open(t, Config{})
	full := mustStart(t, s, sh("sleep 600"))
	for range wire.InboxSize - 1 {
		if a, err := s.Start(t.Context(), wire.Start{Command: []string{"/no/such"}, Session: "t"}); err != nil || a.Error == "" {
			t.Fatal(a, err)
		}
	}
	if _, err := s.Restart(t.Context(), string(full.HandleID), "", wire.Cancel{}); !errors.Is(err, handles.ErrInboxFull) {
		t.Errorf("restart: %v", err)
	}
	if rec, err := s.Show(t.Context(), string(full.HandleID), ""); err != nil || rec.Status != handles.Running || rec.Stop != nil {
		t.Errorf("%+v, %v", rec, err)
	}
}
