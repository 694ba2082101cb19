package supervisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/keeper"
	"procsup/supervisor/wire"
)

// leave makes the state directory of a supervisor that died with one run in
// it: admitted, and as change made its record.
func leave(t *testing.T, spec wire.Start, change func(*handles.Record)) (dir string, id handles.ID) {
	t.Helper()
	dir = t.TempDir()
	spec, err := check(spec)
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dead := &Supervisor{fence: 1}
	r := newRun(dead, handles.NewID(), spec, nil)
	r.rec = handles.Record{HandleID: r.id, Kind: "handle", SessionID: spec.Session, Name: spec.Name, Command: spec.Command, Status: handles.Starting, StartedAt: time.Now()}
	for seq, kind := range []string{"admitted", "spawned"} {
		if kind == "spawned" {
			if change == nil {
				continue
			}
			change(&r.rec)
		}
		r.rec.Revision, r.rec.Seq = r.rec.Revision+1, int64(seq)+1
		if err := j.Submit(batch(r, kind, nil)).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, r.id
}

// S4-07, S4-13, S3-81: a command that was spawned and not yet recorded when its
// supervisor died is adopted through a row of the journal like any other: the
// row has its identity, and a stop names it.
func TestS4_07_AnAdoptedChildIsAJournalRow(t *testing.T) {
	c := exec.Command("/bin/sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	who, err := platform.Identify(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	dir, id := leave(t, sh("sleep 600"), nil)
	s := open(t, Config{Dir: dir, Handover: &keeper.Handover{Generation: 2, Runs: []keeper.Run{{ID: string(id), PID: who.PID, StartTicks: who.StartTicks}}}})
	r := s.live(id)
	go func() { // the keeper's part; ends with the command
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, who.PID, &info, unix.WEXITED|unix.WNOWAIT, nil)
		for errors.Is(err, unix.EINTR) {
			err = unix.Waitid(unix.P_PID, who.PID, &info, unix.WEXITED|unix.WNOWAIT, nil)
		}
		r.exits <- exitSeen{exit: platform.Exit{Code: -1, Signal: syscall.SIGTERM}, at: time.Now()}
	}()
	rec, err := s.Show(t.Context(), string(id), "")
	if err != nil || rec.Status != handles.Running || rec.PID != who.PID || rec.ExecIdentity == nil || rec.ExecIdentity.StartTicks != who.StartTicks {
		t.Fatalf("adopted: %+v, %v", rec, err)
	}
	cancelled, err := s.Cancel(t.Context(), string(id), "", wire.Cancel{})
	if err != nil || !cancelled.Cancelled || cancelled.Record.Signal != "TERM" {
		t.Errorf("cancel: %+v, %v", cancelled, err)
	}
	es, err := s.journal.Entries(0, string(id), 0)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range es {
		kinds = append(kinds, e.Kind)
	}
	if want := []string{"admitted", "spawned", "stop", "ended"}; !slices.Equal(kinds, want) {
		t.Errorf("rows %v, want %v", kinds, want)
	}
	if rows := stops(t, s, id); len(rows) != 1 || rows[0]["cuts"] != string(id) {
		t.Errorf("stop rows %v", rows)
	}
}

// S3-84: a record without an identity, as an old one is, neither lives nor has
// ended for all that can be told. It is shown as unverifiable until the grace is
// over, and then lost.
func TestS3_84_ARecordWithoutAnIdentity(t *testing.T) {
	anonymous := func(rec *handles.Record) {
		rec.Status, rec.PID, rec.GroupID = handles.Running, os.Getpid(), os.Getpid()
	}
	spec := sh("sleep 600")
	spec.Name = "old"
	dir, id := leave(t, spec, anonymous)
	s := open(t, Config{Dir: dir})
	if s.cfg.UnverifiableGrace != 5*time.Minute {
		t.Errorf("the grace is %v", s.cfg.UnverifiableGrace)
	}
	w, err := s.Wait(t.Context(), string(id), "", -1)
	if err != nil || w.Status != wire.WaitPending || w.Record.Status != handles.Running || w.Record.Liveness != "unverifiable" {
		t.Errorf("in the grace: %+v, %v", w.Record, err)
	}
	if _, err := s.Start(t.Context(), spec); !errors.Is(err, handles.ErrNameTaken) {
		t.Errorf("its name: %v", err)
	}

	dir, id = leave(t, spec, anonymous)
	s = open(t, Config{Dir: dir, UnverifiableGrace: time.Millisecond})
	rec := mustWait(t, s, id)
	if rec.Status != handles.Lost || !strings.Contains(rec.Error, "could not be verified for 1ms") || rec.Cause != "" || rec.Ending != "" {
		t.Errorf("after the grace: %+v", rec)
	}
	if rows := stops(t, s, id); len(rows) != 0 {
		t.Errorf("stop rows %v", rows)
	}
	if a := mustStart(t, s, spec); a.HandleID == id {
		t.Errorf("%+v", a)
	}
}

// S3-84, S4-15, S4-32: whoever stops such a run gets it out of the way at once. It
// got no signal, so nobody claims to have ended it.
func TestS3_84_StopOfWhatCannotBeVerified(t *testing.T) {
	dir, id := leave(t, sh("sleep 600"), func(rec *handles.Record) { rec.Status, rec.PID = handles.Running, os.Getpid() })
	s := open(t, Config{Dir: dir})
	c, err := s.Cancel(t.Context(), string(id), "", wire.Cancel{})
	if err != nil || c.Cancelled || c.Record.Status != handles.Lost || c.Record.Stop.Answer != "unconfirmed" || c.Record.Ending != "" {
		t.Errorf("%+v, %v", c.Record, err)
	}
}

// S3-82, S4-26: one that was admitted and of which no process was ever recorded is
// settled at once. It is not started again, and nobody is said to have stopped it.
func TestS3_82_NoProcessWasRecorded(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	dir, id := leave(t, sh("echo >"+marker), nil)
	s := open(t, Config{Dir: dir})
	rec, err := s.Show(t.Context(), string(id), "")
	if err != nil || rec.Status != handles.Lost || rec.Error == "" || rec.Stop != nil {
		t.Errorf("%+v, %v", rec, err)
	}
	if rows := stops(t, s, id); len(rows) != 0 {
		t.Errorf("stop rows %v", rows)
	}
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it ran: %v", err)
	}
}
