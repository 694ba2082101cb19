package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// G6, S2-11: cancelled means that nothing of the tree is left; a loop in the
// leader starts nothing more.
func TestG6_CancelEndsTheWholeTree(t *testing.T) {
	s := open(t, Config{Exclusive: true})
	file := filepath.Join(t.TempDir(), "pids")
	a := mustStart(t, s, sh(`for i in 1 2 3 4; do sh -c 'echo $$ >>`+file+`; echo up; exec sleep 20'; done`))
	if w, err := s.WaitOutput(t.Context(), string(a.HandleID), "", wire.WaitOutput{Pattern: "up"}); err != nil || w.Status != wire.Matched {
		t.Fatalf("%+v, %v", w, err)
	}
	c, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{})
	if err != nil || !c.Cancelled || len(c.Record.Cleanup.Survivors) != 0 {
		t.Fatalf("cancel %+v, %v", c, err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(string(b))
	if len(pids) != 1 {
		t.Errorf("%d commands were started, want 1", len(pids))
	}
	for _, p := range append(pids, strconv.Itoa(a.PID)) {
		pid, _ := strconv.Atoi(p)
		if st, err := platform.ReadStat(pid); err == nil && st.Alive() {
			t.Errorf("%d lives", pid)
		}
	}
}

// G8, S2-22: the caller's context bounds the call, never the command.
func TestG8_StartersEndDoesNotEndIt(t *testing.T) {
	s := open(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	a, err := s.Start(ctx, sh("echo up; sleep 600"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if w, err := s.WaitOutput(t.Context(), string(a.HandleID), "", wire.WaitOutput{Pattern: "up"}); err != nil || w.Record.Status != handles.Running {
		t.Errorf("%+v, %v", w, err)
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	if _, err := s.Wait(gone, string(a.HandleID), "", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("wait of a caller that left: %v", err)
	}
	if rec, err := s.Show(t.Context(), string(a.HandleID), ""); err != nil || rec.Status != handles.Running || rec.Liveness != "live" { // S4-15
		t.Errorf("%+v, %v", rec, err)
	}
}

// G14: a kill that was asked for says who asked; a crash by somebody else's
// KILL is a failure without a stop.
func TestG14_KilledIsNotFailed(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, sh("sleep 600"))
	c, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{})
	if err != nil || c.Record.Status != handles.Killed || c.Record.Cause != handles.CauseCancelled || c.Record.ExitCode != nil || c.Record.Signal != "TERM" || c.Record.Stop.By != "user" {
		t.Errorf("%+v, %v", c.Record, err)
	}
	rec := mustWait(t, s, mustStart(t, s, sh("kill -KILL $$")).HandleID)
	if rec.Status != handles.Failed || rec.Signal != "KILL" || rec.Stop != nil || rec.Cause != "" {
		t.Errorf("%+v", rec)
	}
}

// G22: a cancel after the end changes nothing.
func TestG22_CancelAfterTheEnd(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, sh("exit 5"))
	before := mustWait(t, s, a.HandleID)
	c, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{})
	if err != nil || c.Cancelled || c.Record.Status != handles.Failed || *c.Record.ExitCode != 5 || c.Record.Revision != before.Revision {
		t.Errorf("%+v, %v", c, err)
	}
}

// A21, S4-24: a stop while the command is still being started returns at once,
// and it never runs later.
func TestA21_StopWhileStarting(t *testing.T) {
	g := newGate("admitted")
	s := open(t, Config{Hooks: g.hooks()})
	marker := filepath.Join(t.TempDir(), "ran")
	answered := make(chan *wire.Started, 1)
	go func() { // ends with the start
		a, err := s.Start(t.Context(), sh("echo >"+marker))
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	id := <-g.reached
	c, err := s.Cancel(t.Context(), string(id), "", wire.Cancel{NoWait: true})
	if err != nil || !c.Stopping || c.Cancelled {
		t.Fatalf("%+v, %v", c, err)
	}
	close(g.open)
	<-answered
	rec := mustWait(t, s, id)
	if rec.Status != handles.Cancelled || rec.PID != 0 {
		t.Errorf("%+v", rec)
	}
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it ran: %v", err)
	}
}

// S3-81, S3-83, S4-12: the identity is taken once, is that of the command, and
// every row names the run by one id.
func TestS3_81_Identity(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, sh("sleep 600"))
	id, err := platform.Identify(a.PID)
	if err != nil {
		t.Fatal(err)
	}
	if a.Exec.PID != id.PID || a.Exec.StartTicks != id.StartTicks || a.Exec.BootID != id.BootID || a.PID == os.Getpid() {
		t.Errorf("got %+v, want %+v", a.Exec, id)
	}
	if _, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{}); err != nil {
		t.Fatal(err)
	}
	rec := mustWait(t, s, a.HandleID)
	if *rec.ExecIdentity != *a.Exec {
		t.Errorf("changed to %+v", rec.ExecIdentity)
	}
	es, err := s.Journal(t.Context(), 0, string(a.HandleID), 0)
	if err != nil || len(es) != 4 { // admitted, spawned, stop, ended
		t.Fatalf("%d entries, %v", len(es), err)
	}
	for i, e := range es {
		if e.Run != string(a.HandleID) || i > 0 && e.Seq <= es[i-1].Seq {
			t.Errorf("entry %+v", e)
		}
	}
}

// S4-26, S4-46, S2-27: a restart writes no stop, and what was read before reads
// the same: ids, stops, records.
func TestS4_26_RestartWritesNoStop(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	a := mustStart(t, s, sh("sleep 600"))
	c, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	rec := mustWait(t, s, a.HandleID)
	if rec.Stop.ID != c.Record.Stop.ID || rec.Revision != c.Record.Revision {
		t.Errorf("got %+v, want %+v", rec.Stop, c.Record.Stop)
	}
	if rows := stops(t, s, a.HandleID); len(rows) != 1 {
		t.Errorf("stop rows %v", rows)
	}
}
