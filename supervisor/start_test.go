package supervisor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

func open(t *testing.T, cfg Config) *Supervisor {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func sh(script string) wire.Start {
	return wire.Start{Command: []string{"/bin/sh", "-c", script}, Env: os.Environ(), Session: "t"}
}

func mustStart(t *testing.T, s *Supervisor, req wire.Start) *wire.Started {
	t.Helper()
	a, err := s.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mustWait(t *testing.T, s *Supervisor, id handles.ID) *handles.Record {
	t.Helper()
	w, err := s.Wait(t.Context(), string(id), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return w.Record
}

// S2-25, S2-26, S2-35: the envelope and the record have what they promise.
func TestS2_25_StartWaitShow(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, sh("echo hello; echo oops >&2; exit 3"))
	if a.Status != handles.Running || a.PID == 0 || a.GroupID != a.PID || a.Exec == nil || a.Sandbox.Kind != "none" {
		t.Errorf("envelope %+v", a)
	}
	if _, err := os.Stat(a.StdoutPath); err != nil { // S2-08
		t.Error(err)
	}
	rec := mustWait(t, s, a.HandleID)
	if rec.Status != handles.Failed || rec.ExitCode == nil || *rec.ExitCode != 3 || !rec.Output.Complete {
		t.Errorf("record %+v", rec)
	}
	var out bytes.Buffer
	if err := s.Output(t.Context(), string(a.HandleID), "", OutputRange{}, &out, nil); err != nil || out.String() != "hello\n" {
		t.Errorf("output %q, %v", out.String(), err)
	}
	if b, err := os.ReadFile(a.StderrPath); err != nil || string(b) != "oops\n" {
		t.Errorf("stderr %q, %v", b, err)
	}
}

// S2-29, S2-32, S1-22: a cancel ends the run once; after the end it changes
// nothing.
func TestS2_29_Cancel(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, sh("echo up; sleep 600"))
	w, err := s.WaitOutput(t.Context(), string(a.HandleID), "", wire.WaitOutput{Pattern: "up"})
	if err != nil || w.Status != wire.Matched || w.From != 0 || w.To != 2 {
		t.Fatalf("wait-output %+v, %v", w, err)
	}
	c, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{Reason: "enough"})
	if err != nil || !c.Cancelled || c.Record.Status != handles.Killed || c.Record.Cause != handles.CauseCancelled || c.Record.Signal != "TERM" {
		t.Fatalf("cancel %+v %+v, %v", c, c.Record, err)
	}
	if c.Record.Ending != "interrupted" || c.Record.Stop.Reason != "enough" {
		t.Errorf("record %+v", c.Record)
	}
	again, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{})
	if err != nil || again.Cancelled || again.Record.Revision != c.Record.Revision {
		t.Errorf("second cancel %+v, %v", again, err)
	}
}

// A20: a command that cannot be started is a result, not an error.
func TestA20_StartFailureIsAResult(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, wire.Start{Command: []string{"/no/such"}})
	rec := mustWait(t, s, a.HandleID)
	if rec.Status != handles.Failed || rec.SpawnError == nil || rec.SpawnError.Errno != "ENOENT" {
		t.Errorf("record %+v", rec)
	}
}

// S3-12: a repeated key gives the first answer, another request under it is
// refused.
func TestS3_12_IdempotencyKey(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	req := sh("exit 0")
	req.Idempotency = "k1"
	req.Env = []string{"A=1", "Z=1", "_=/bin/sh"}
	a := mustStart(t, s, req)
	req.Env = []string{"_=/usr/bin/procsup", "SHLVL=3", "Z=1", "A=1"} // as a shell moves its own about
	b := mustStart(t, s, req)
	if b.HandleID != a.HandleID || !b.Replayed {
		t.Errorf("got %s replayed=%v, want %s", b.HandleID, b.Replayed, a.HandleID)
	}
	mustWait(t, s, a.HandleID)
	other := sh("exit 1")
	other.Idempotency = "k1"
	if _, err := s.Start(t.Context(), other); !errors.Is(err, handles.ErrKeyConflict) {
		t.Errorf("got %v, want %v", err, handles.ErrKeyConflict)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	if c := mustStart(t, s, req); c.HandleID != a.HandleID {
		t.Errorf("after a restart: got %s, want %s", c.HandleID, a.HandleID)
	}
}

// A22: a name is taken while its run lives, and free afterwards.
func TestA22_NameIsTakenOnce(t *testing.T) {
	s := open(t, Config{})
	req := sh("sleep 600")
	req.Name = "web"
	mustStart(t, s, req)
	if _, err := s.Start(t.Context(), req); !errors.Is(err, handles.ErrNameTaken) {
		t.Fatalf("got %v, want %v", err, handles.ErrNameTaken)
	}
	again, err := s.Restart(t.Context(), "web", "t", wire.Cancel{})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := s.Show(t.Context(), "web", "t")
	if err != nil || rec.HandleID != again.HandleID || rec.Parent == "" {
		t.Errorf("show %+v, %v", rec, err)
	}
}

// S3-54: newest first.
func TestS3_54_List(t *testing.T) {
	s := open(t, Config{})
	var want []handles.ID
	for range 5 {
		a := mustStart(t, s, sh("exit 0"))
		mustWait(t, s, a.HandleID)
		want = append([]handles.ID{a.HandleID}, want...)
	}
	l, err := s.List(context.Background(), journal.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range l.Handles {
		got = append(got, string(r.HandleID))
	}
	if len(got) != len(want) || got[0] != string(want[0]) && !strings.HasPrefix(got[0], "hto-") {
		t.Errorf("got %v, want %v", got, want)
	}
}

// S1-12: the deadline ends it and says so.
func TestS1_12_Deadline(t *testing.T) {
	s := open(t, Config{})
	req := sh("trap '' TERM; while :; do sleep 1; done")
	req.DeadlineMS = 100
	grace := int64(100)
	req.GraceMS = &grace
	rec := mustWait(t, s, mustStart(t, s, req).HandleID)
	if rec.Status != handles.Killed || rec.Cause != handles.CauseDeadline || rec.Signal != "KILL" || rec.Ending != "failed" {
		t.Errorf("record %+v", rec)
	}
}
