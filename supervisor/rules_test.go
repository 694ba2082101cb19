package supervisor

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// S2-09, S4-12: the first waiter, the second, and one that comes after the end
// get the same: one record of one revision.
func TestS2_09_EveryWaiterGetsTheSame(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, wire.Start{Command: []string{"/bin/sh", "-c", "read line; exit $line"}, Stdin: "pipe", Session: "t", Env: os.Environ()})
	const n = 3
	got := make(chan *wire.Waited, n)
	for range n {
		go func() { // ends with the run
			w, err := s.Wait(t.Context(), string(a.HandleID), "", 0)
			if err != nil {
				t.Error(err)
			}
			got <- w
		}()
	}
	if _, err := s.Send(t.Context(), string(a.HandleID), "", []byte("7\n"), true); err != nil {
		t.Fatal(err)
	}
	first := <-got
	if first.Status != wire.WaitError || first.Record.ExitCode == nil || *first.Record.ExitCode != 7 {
		t.Fatalf("got %+v", first)
	}
	for range n - 1 {
		if w := <-got; w.Record.Revision != first.Record.Revision || *w.Record.ExitCode != 7 {
			t.Errorf("another waiter got %+v", w.Record)
		}
	}
	if rec := mustWait(t, s, a.HandleID); rec.Revision != first.Record.Revision || *rec.ExitCode != 7 || !rec.EndedAt.Equal(first.Record.EndedAt) {
		t.Errorf("after the end: %+v", rec)
	}
}

// S2-23: a handle dies of a stop that somebody asked for or of itself: not of
// idleness, age, other work, a full quota or the removal of old records.
func TestS2_23_NothingElseEndsAHandle(t *testing.T) {
	retained := make(chan struct{}, 8)
	s := open(t, Config{Quota: 1, Retention: 1, Hooks: &Hooks{Retained: func() { retained <- struct{}{} }}})
	<-retained
	idle := mustStart(t, s, sh("echo up; exec sleep 600"))
	for i := range 40 {
		a := mustStart(t, s, sh("head -c 100000 /dev/zero"))
		mustWait(t, s, a.HandleID)
		if i%10 == 0 {
			s.removeBefore(a.StartedAt.AddDate(1, 0, 0)) // as if a year had passed
		}
	}
	rec, err := s.Show(t.Context(), string(idle.HandleID), "")
	if err != nil || rec.Status != handles.Running || rec.PID != idle.PID || rec.Liveness != "live" {
		t.Errorf("%+v, %v", rec, err)
	}
	if rows := stops(t, s, idle.HandleID); len(rows) != 0 {
		t.Errorf("stop rows %v", rows)
	}
	if b, err := os.ReadFile(idle.StdoutPath); err != nil || string(b) != "up\n" {
		t.Errorf("its output: %q, %v", b, err)
	}
}

// S2-36: a command that cannot be started has failed, with an error in words,
// in every answer.
func TestS2_36_FailedHasAnError(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, wire.Start{Command: []string{"/no/such/command"}, Session: "t"})
	check := func(where string, status handles.Status, text string) {
		t.Helper()
		if status != handles.Failed || !strings.Contains(text, "/no/such/command") {
			t.Errorf("%s: %s %q", where, status, text)
		}
	}
	check("start", a.Status, a.Error)
	rec := mustWait(t, s, a.HandleID)
	check("wait", rec.Status, rec.Error)
	rec, err := s.Show(t.Context(), string(a.HandleID), "")
	if err != nil {
		t.Fatal(err)
	}
	check("show", rec.Status, rec.Error)
	l, err := s.List(t.Context(), journal.Filter{})
	if err != nil || len(l.Handles) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	check("list", l.Handles[0].Status, l.Handles[0].Error)
}

// S3-27: every answer to a start has the handle and the session in its one
// spelling; all spellings of a session mean the same one.
func TestS3_27_CanonicalSession(t *testing.T) {
	s := open(t, Config{})
	in := func(session, name, key string) (*wire.Started, error) {
		req := sh("exec sleep 600")
		req.Session, req.Name, req.Idempotency = session, name, key
		return s.Start(t.Context(), req)
	}
	a, err := in("S/", "web", "k")
	if err != nil || a.HandleID == "" || a.SessionID != "S" {
		t.Fatalf("given S/: %+v, %v", a, err)
	}
	if b, err := in("", "", ""); err != nil || b.HandleID == "" || b.SessionID != "default" {
		t.Errorf("given none: %+v, %v", b, err)
	}
	if b, err := in("S//", "web", "k"); err != nil || !b.Replayed || b.HandleID != a.HandleID || b.SessionID != "S" {
		t.Errorf("the same request: %+v, %v", b, err)
	}
	if _, err := in("S", "web", ""); !errors.Is(err, handles.ErrNameTaken) {
		t.Errorf("the name again: %v", err)
	}
	l, err := s.List(t.Context(), journal.Filter{Session: "S/"})
	if err != nil || len(l.Handles) == 0 {
		t.Errorf("list of S/: %+v, %v", l, err)
	}
	for _, rec := range l.Handles {
		if rec.SessionID != "S" {
			t.Errorf("session %q", rec.SessionID)
		}
	}
	if _, err := s.Show(t.Context(), "web", "S/"); err != nil {
		t.Errorf("show by name in S/: %v", err)
	}
	for _, bad := range []string{"/", "a/b", "/S", "a b"} {
		req := sh("true")
		req.Session = bad
		if _, err := s.Start(t.Context(), req); !errors.Is(err, handles.ErrInvalid) {
			t.Errorf("session %q: %v", bad, err)
		}
	}
}

// S3-52: each answer says for which row of the journal it is true; one that
// comes later never has a smaller number, and a reader can tell which is newer.
func TestS3_52_AnswersCarryTheirMoment(t *testing.T) {
	s := open(t, Config{})
	req := sh("exec sleep 600")
	a := mustStart(t, s, req)
	if a.Revision == 0 || a.Seq == 0 {
		t.Fatalf("the start's answer has revision %d and seq %d", a.Revision, a.Seq)
	}
	shown, err := s.Show(t.Context(), string(a.HandleID), "")
	if err != nil || shown.Revision != a.Revision || shown.Seq != a.Seq {
		t.Errorf("nothing changed: %+v, %v", shown, err)
	}
	c, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{})
	if err != nil || c.Record.Revision != a.Revision+2 || c.Record.Seq <= c.Record.Stop.Seq || c.Record.Stop.Seq <= a.Seq { // stop, ended
		t.Errorf("cancel: %+v, %v", c.Record, err)
	}
	es, err := s.journal.Entries(0, string(a.HandleID), 0)
	if err != nil {
		t.Fatal(err)
	}
	var body struct{ Record handles.Record }
	last := es[len(es)-1]
	if err := json.Unmarshal(last.Body, &body); err != nil || last.Seq != c.Record.Seq || body.Record.Revision != c.Record.Revision {
		t.Errorf("the last row is %d with revision %d, %v; the answer has %d and %d", last.Seq, body.Record.Revision, err, c.Record.Seq, c.Record.Revision)
	}
	if l, err := s.List(t.Context(), journal.Filter{}); err != nil || l.Seq < c.Record.Seq {
		t.Errorf("list is true for %d, %v", l.Seq, err)
	}
}
