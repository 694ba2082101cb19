package supervisor

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// moment is long enough for what must not happen to have happened.
const moment = 150 * time.Millisecond

// block keeps the journal from committing until it is released, as a slow disk
// does: another connection has the write lock (the writer waits 5 s for it).
func block(t *testing.T, s *Supervisor) (release func()) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(s.cfg.Dir, "journal.db")) // the driver that journal brings
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Conn(context.Background())
	if err == nil {
		_, err = c.ExecContext(context.Background(), "PRAGMA busy_timeout=5000; BEGIN IMMEDIATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := c.ExecContext(context.Background(), "ROLLBACK"); err != nil {
			t.Error(err)
		}
		c.Close()
		db.Close()
	}
}

// held checks that something does not happen until the journal commits, and
// does then.
func held[T any](t *testing.T, what string, happens <-chan T, release func()) (v T) {
	t.Helper()
	select {
	case <-happens:
		t.Errorf("%s, before the journal took it", what)
		release()
		return v
	case <-time.After(moment):
	}
	release()
	select {
	case v = <-happens:
	case <-time.After(20 * time.Second):
		t.Fatalf("not after the commit either: %s", what)
	}
	return v
}

func async(t *testing.T, s *Supervisor, req wire.Start) <-chan *wire.Started {
	answered := make(chan *wire.Started, 1)
	go func() { // ends with the start
		a, err := s.Start(t.Context(), req)
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	return answered
}

// S4-44, S4-06: nothing is spawned before the journal took the admission.
func TestS4_44_NoSpawnBeforeTheAdmission(t *testing.T) {
	admitted := make(chan handles.ID, 1)
	s := open(t, Config{Hooks: &Hooks{At: func(point string, id handles.ID) {
		if point == "admitted" {
			admitted <- id
		}
	}}})
	release := block(t, s)
	answered := async(t, s, sh("exit 0"))
	held(t, "the start went on", admitted, release)
	mustWait(t, s, (<-answered).HandleID)
}

// S4-06, S4-44: a start is answered when its spawn is in the journal, not before.
func TestS4_44_NoAnswerBeforeTheSpawnIsRecorded(t *testing.T) {
	g := newGate("spawned")
	s := open(t, Config{Hooks: g.hooks()})
	answered := async(t, s, sh("exec sleep 600"))
	<-g.reached
	release := block(t, s)
	close(g.open)
	a := held(t, "the start was answered", answered, release)
	if a != nil && a.Status != handles.Running {
		t.Errorf("%+v", a)
	}
}

// S4-06: an end is told when it is in the journal, not before; and it lands,
// however long that takes.
func TestS4_06_NoEndIsToldBeforeItIsRecorded(t *testing.T) {
	g := newGate("settle")
	s := open(t, Config{Hooks: g.hooks()})
	a := mustStart(t, s, sh("exit 3"))
	<-g.reached
	release := block(t, s)
	told := make(chan *handles.Record, 1)
	go func() { // ends with the run
		w, err := s.Wait(t.Context(), string(a.HandleID), "", 0)
		if err != nil {
			t.Error(err)
		}
		told <- w.Record
	}()
	close(g.open)
	held(t, "the end was told", told, release)
	row, err := s.journal.Run(string(a.HandleID))
	if err != nil || row.Status != string(handles.Failed) || row.Live {
		t.Errorf("the journal says %+v, %v", row, err)
	}
}

// S4-06, S4-32: nobody is signalled for a stop that could be forgotten, and
// nobody is told of it.
func TestS4_06_NoSignalBeforeTheStopIsRecorded(t *testing.T) {
	s := open(t, Config{})
	got := filepath.Join(t.TempDir(), "got")
	a := mustStart(t, s, sh("trap 'echo >"+got+"; exit 0' TERM; echo up; while :; do sleep 0.01; done"))
	if w, err := s.WaitOutput(t.Context(), string(a.HandleID), "", wire.WaitOutput{Pattern: "up"}); err != nil || w.Status != wire.Matched {
		t.Fatalf("%+v, %v", w, err)
	}
	release := block(t, s)
	r := s.live(a.HandleID)
	told := make(chan *wire.Cancelled, 1)
	go func() { // ends with the commit
		c, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{NoWait: true})
		if err != nil {
			t.Error(err)
		}
		told <- c
	}()
	held(t, "the cancel was answered", told, func() {
		if _, err := os.Stat(got); err == nil || phaseOf(r) >= observed {
			t.Error("it was signalled before the stop was durable")
		}
		release()
	})
	if rec := mustWait(t, s, a.HandleID); rec.Status != handles.Killed || !rec.Graceful {
		t.Errorf("%+v", rec)
	}
}

// phaseOf is how far the run has come.
func phaseOf(r *run) phase {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.phase
}

// S4-41: the end of a run is no request: it is never refused, and the disk has
// room set aside for it from the admission on.
func TestS4_41_RoomForTheEnd(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, sh("exec sleep 600"))
	info, err := os.Stat(filepath.Join(s.cfg.Dir, "journal.reserve"))
	if err != nil || info.Size() < journal.ReservePerRun {
		t.Errorf("the reserve: %+v, %v, want %d bytes", info, err, journal.ReservePerRun)
	}
	for _, kind := range []string{"spawned", "stop", "ended"} {
		if b := batch(s.live(a.HandleID), kind, nil); !b.Must {
			t.Errorf("%s may be refused", kind)
		}
	}
	if b := batch(s.live(a.HandleID), "admitted", nil); b.Must {
		t.Error("an admission may not be refused")
	}
}
