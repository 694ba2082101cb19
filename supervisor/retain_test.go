package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// Records are kept for 7 days and then removed with their output, at the start
// and on each tick; what lives, what is younger and what is no run of ours
// stays, whatever its age.
func TestOldRecordsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	if s.cfg.Retention != 7*24*time.Hour {
		t.Errorf("records are kept for %v", s.cfg.Retention)
	}
	service := func(script string) wire.Start {
		req := sh(script)
		req.Lease = LeaseService
		return req
	}
	old, owed := mustStart(t, s, service("echo old")), mustStart(t, s, sh("echo owed"))
	mustWait(t, s, old.HandleID)
	mustWait(t, s, owed.HandleID)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	stranger := filepath.Join(dir, "handles", "notes")
	if err := os.Mkdir(stranger, 0o700); err != nil {
		t.Fatal(err)
	}
	retained := make(chan struct{}, 2)
	s = open(t, Config{Dir: dir, Retention: time.Hour, Hooks: &Hooks{Retained: func() { retained <- struct{}{} }}})
	<-retained
	if rec := mustWait(t, s, old.HandleID); rec.Status != handles.Completed { // it is young
		t.Errorf("%+v", rec)
	}
	live := mustStart(t, s, sh("echo up; exec sleep 600"))
	tick := make(chan time.Time, 1)
	s.cfg.Retention = -time.Hour           // by now everything is an hour too old
	s.chores.Go(func() { s.retain(tick) }) // ends with s
	<-retained
	s.gone(t, old.HandleID)
	if _, err := os.Stat(stranger); err != nil {
		t.Error(err)
	}
	if rec, err := s.Show(t.Context(), string(live.HandleID), ""); err != nil || rec.Status != handles.Running {
		t.Errorf("the one that lives: %+v, %v", rec, err)
	}
	if _, err := os.Stat(live.StdoutPath); err != nil {
		t.Error(err)
	}
	if _, err := s.Show(t.Context(), string(owed.HandleID), ""); err != nil { // its end was not delivered yet
		t.Error(err)
	}
	if _, err := os.Stat(owed.StdoutPath); err != nil {
		t.Error(err)
	}
	next := mustStart(t, s, service("exit 0"))
	mustWait(t, s, next.HandleID)
	tick <- time.Now()
	<-retained
	s.gone(t, next.HandleID)
}

// gone checks that neither the record nor the output of a run is there.
func (s *Supervisor) gone(t *testing.T, id handles.ID) {
	t.Helper()
	if _, err := s.Show(t.Context(), string(id), ""); !errors.Is(err, handles.ErrNotFound) {
		t.Errorf("the record of %s: %v", id, err)
	}
	if _, err := os.Stat(s.dir(id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the output of %s: %v", id, err)
	}
}

// Output without a record (a crash between the two removals, a torn journal)
// goes when it is old, and not before; a journal that cannot be read removes
// nothing.
func TestOutputWithoutARecord(t *testing.T) {
	s := open(t, Config{Retention: -1})
	orphan, kept := handles.NewID(), mustStart(t, s, sh("echo kept"))
	mustWait(t, s, kept.HandleID)
	if err := os.Mkdir(s.dir(orphan), 0o700); err != nil {
		t.Fatal(err)
	}
	if n := s.removeOutput(time.Now().Add(-time.Hour)); n != 0 {
		t.Errorf("%d removed that are young", n)
	}
	if n := s.removeOutput(time.Now().Add(time.Hour)); n != 1 {
		t.Errorf("%d removed, want the one without a record", n)
	}
	if _, err := os.Stat(kept.StdoutPath); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s.removeOutput(time.Now().Add(time.Hour)); n != 0 {
		t.Errorf("%d removed although the journal is closed", n)
	}
}

// G18: the output of earlier lives counts towards the quota, and goes first, also
// where records are kept for ever.
func TestQuotaOverRestarts(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Quota: 1 << 20, Retention: -1}
	s := open(t, cfg)
	const script = "head -c 700000 /dev/zero"
	old := mustStart(t, s, sh(script))
	mustWait(t, s, old.HandleID)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	s.chores.Wait() // it has been counted
	next := mustStart(t, s, sh(script))
	mustWait(t, s, next.HandleID)
	s.quota.Wait()
	if _, err := os.Stat(old.StdoutPath); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the older output: %v", err)
	}
	if _, err := os.Stat(next.StdoutPath); err != nil {
		t.Error(err)
	}
	if used := s.quota.Used(); used != 700_000 {
		t.Errorf("%d bytes are kept", used)
	}
}
