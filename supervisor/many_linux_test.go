package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// S4-12: nothing of a run stays in memory for its key after its end, and yet a
// repeat of the key gives the first answer.
func TestKeysEndWithTheirRuns(t *testing.T) {
	s := open(t, Config{})
	req := sh("exit 3")
	var ids []handles.ID
	for i := range 32 {
		req.Idempotency = fmt.Sprint("key", i)
		a := mustStart(t, s, req)
		mustWait(t, s, a.HandleID)
		ids = append(ids, a.HandleID)
	}
	s.mu.Lock()
	keys, runs := len(s.keys), len(s.runs)
	s.mu.Unlock()
	if keys != 0 || runs != 0 {
		t.Errorf("%d keys and %d runs are in memory, all have ended", keys, runs)
	}
	for i, id := range ids {
		req.Idempotency = fmt.Sprint("key", i)
		if a := mustStart(t, s, req); a.HandleID != id || !a.Replayed {
			t.Errorf("repeat of key %d: %s, replayed %v, want %s", i, a.HandleID, a.Replayed, id)
		}
	}
}

// One key is one run, however many ask for it at once and however soon it ends.
func TestOneKeyIsOneRun(t *testing.T) {
	s := open(t, Config{})
	for i := range 20 {
		req := sh("")
		req.Command, req.Idempotency = []string{"/bin/true"}, fmt.Sprint("key", i)
		got := make([]handles.ID, 8)
		var wg sync.WaitGroup
		for k := range got {
			wg.Go(func() {
				a, err := s.Start(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				got[k] = a.HandleID
			})
		}
		wg.Wait()
		if got = slices.Compact(got); len(got) != 1 {
			t.Fatalf("key %d: %v", i, got)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Performance 6, G20: an idle handle has no more descriptors than admission
// counts for it, whatever holds its tree.
func TestDescriptorsAHandle(t *testing.T) {
	const n = 40
	s := open(t, Config{Exclusive: true})
	mustWait(t, s, mustStart(t, s, sh("exit 0")).HandleID) // what the first one opens for all
	before := openFiles(t)
	for range n {
		a := mustStart(t, s, sh("sleep 600"))
		if a.Status != handles.Running {
			t.Fatalf("%+v", a)
		}
	}
	if more := openFiles(t) - before; more > n*fdsPerRun+8 { // readers of the journal and the like
		t.Errorf("%d handles have %d descriptors, admission counts %d each", n, more, fdsPerRun)
	}
}

// The list of what lives is the journal's, in its order.
func TestListOfTheLiving(t *testing.T) {
	s := open(t, Config{})
	for i := range 6 {
		req := sh("sleep 600")
		req.Session = fmt.Sprint("s", i%2)
		mustStart(t, s, req)
	}
	mustWait(t, s, mustStart(t, s, sh("exit 0")).HandleID)
	for _, f := range []journal.Filter{{LiveOnly: true}, {LiveOnly: true, Session: "s1"}, {LiveOnly: true, Limit: 2}} {
		got, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		rows, more, err := s.journal.List(f)
		if err != nil {
			t.Fatal(err)
		}
		same := slices.EqualFunc(got.Handles, rows, func(rec handles.Record, row journal.Run) bool { return string(rec.HandleID) == row.ID })
		if !same || got.More != more {
			t.Errorf("%+v: %d handles, more %v; the journal has %d, more %v", f, len(got.Handles), got.More, len(rows), more)
		}
	}
}

// A wait that was there at the end, one that comes after it and the journal say
// the same, whoever the end is owed to.
func TestWaitSaysWhatTheJournalSays(t *testing.T) {
	s := open(t, Config{})
	for _, lease := range []string{LeaseService, LeaseAwaited} {
		for _, script := range []string{"echo x; exit 4", "sleep 600"} {
			gate := filepath.Join(t.TempDir(), "go")
			if err := unix.Mkfifo(gate, 0o600); err != nil {
				t.Fatal(err)
			}
			req := sh("read x <" + gate + "; " + script)
			req.Lease, req.Session = lease, "t"
			a := mustStart(t, s, req)
			r := s.live(a.HandleID)
			got := make(chan *handles.Record, 1)
			go func() { // ends with the run
				w, err := s.Wait(t.Context(), string(a.HandleID), "", 0)
				if err != nil {
					t.Error(err)
					w = &wire.Waited{}
				}
				got <- w.Record
			}()
			if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
				t.Fatal(err)
			}
			if script == "sleep 600" {
				if _, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{}); err != nil {
					t.Fatal(err)
				}
			}
			early := <-got
			late, err := s.Show(t.Context(), string(a.HandleID), "")
			if err != nil {
				t.Fatal(err)
			}
			sameRecord(t, early, late)
			if lease == LeaseAwaited { // and then it changes
				if _, err := s.Take(t.Context(), "t", wire.Take{}, Caller{}); err != nil {
					t.Fatal(err)
				}
				if late, err = s.Show(t.Context(), string(a.HandleID), ""); err != nil {
					t.Fatal(err)
				}
			}
			if early, err = s.outcome(r, a.HandleID); err != nil {
				t.Fatal(err)
			}
			sameRecord(t, early, late)
		}
	}
}

func sameRecord(t *testing.T, got, want *handles.Record) {
	t.Helper()
	x, _ := json.Marshal(got)
	y, _ := json.Marshal(want)
	if string(x) != string(y) {
		t.Errorf("waited for %s\nthe journal has %s", x, y)
	}
}

// A wait that comes after the end needs no journal, and gets the same record.
func TestWaitAfterTheEnd(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, sh("echo x; exit 4"))
	mustWait(t, s, a.HandleID)
	early := mustWait(t, s, a.HandleID)
	late, err := s.Show(t.Context(), string(a.HandleID), "")
	if err != nil {
		t.Fatal(err)
	}
	if early.Status != late.Status || *early.ExitCode != *late.ExitCode || early.Seq != late.Seq || early.Revision != late.Revision || early.Output.Stdout.Bytes != late.Output.Stdout.Bytes {
		t.Errorf("waited for %+v, the journal has %+v", early, late)
	}
	if w, err := s.Wait(t.Context(), string(a.HandleID), "", -1); err != nil || w.Status != wire.WaitError {
		t.Errorf("%+v, %v", w, err)
	}
}
