package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// outlived is a command that exits 3 and leaves a process, whose number it writes
// to a file.
func outlived(t *testing.T, policy pgroup.Leftover) (req wire.Start, number func() int) {
	file := filepath.Join(t.TempDir(), "pid")
	req = sh(fmt.Sprintf("sleep 601 >/dev/null 2>&1 & echo $! >%s; exit 3", file))
	req.Leftover = string(policy)
	return req, func() int {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
}

// waitSoon is mustWait where a fault would be to wait for what outlives the test.
func waitSoon(t *testing.T, s *Supervisor, id handles.ID, number func() int) *handles.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	w, err := s.Wait(ctx, string(id), "", 0)
	if err == nil && w.Record != nil {
		return w.Record
	}
	t.Errorf("it waits on: %+v, %v", w, err)
	_ = unix.Kill(number(), unix.SIGKILL)
	return mustWait(t, s, id)
}

// A1, D1: a stop of any kind that comes after the leader's end reaches what is
// waited for, and the ending stays the leader's own.
func TestA1_LateStopsEndTheWaiting(t *testing.T) {
	cancelled := func(t *testing.T, s *Supervisor, id handles.ID) {
		c, err := s.Cancel(t.Context(), string(id), "", wire.Cancel{WaitResultMS: 10_000})
		if err != nil || c.Cancelled || c.Stopping {
			t.Errorf("cancel %+v, %v", c, err)
		}
	}
	for name, how := range map[string]struct {
		req  func(*wire.Start)
		stop func(*testing.T, *Supervisor, handles.ID)
	}{
		"cancel":    {stop: cancelled},
		"deadline":  {req: func(r *wire.Start) { r.DeadlineMS = 400 }},
		"no output": {req: func(r *wire.Start) { r.NoOutputMS = 400 }},
		"session": {stop: func(t *testing.T, s *Supervisor, _ handles.ID) {
			rep, err := s.CloseSession(t.Context(), "t", wire.EndSession{}, nobodyAsked)
			if err != nil || len(rep.Ended) != 1 || len(rep.StillRunning) != 0 {
				t.Errorf("close %+v, %v", rep, err)
			}
		}},
		"scope": {req: func(r *wire.Start) { r.Scope = "g" }, stop: func(t *testing.T, s *Supervisor, _ handles.ID) {
			if rep, err := s.CancelScope(t.Context(), "t", "g", wire.EndSession{}); err != nil || len(rep.Ended) != 1 {
				t.Errorf("cancel %+v, %v", rep, err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate("observed")
			s := open(t, Config{Hooks: g.hooks()})
			if _, err := s.OpenScope(t.Context(), "t", handles.Scope{Name: "g"}); err != nil {
				t.Fatal(err)
			}
			req, number := outlived(t, pgroup.Wait)
			if how.req != nil {
				how.req(&req)
			}
			a := mustStart(t, s, req)
			<-g.reached
			close(g.open)
			if how.stop != nil {
				how.stop(t, s, a.HandleID)
			}
			rec := waitSoon(t, s, a.HandleID, number)
			if rec.Status != handles.Failed || rec.ExitCode == nil || *rec.ExitCode != 3 || rec.Stop != nil {
				t.Errorf("record %+v", rec)
			}
			if n := len(rec.Cleanup.Signals); n != 1 || len(rec.Cleanup.Survivors) != 0 {
				t.Errorf("cleanup %+v, want one TERM, the grace is not cut short", rec.Cleanup)
			}
			if st, err := platform.ReadStat(number()); err == nil && st.Alive() {
				t.Errorf("%d is left", number())
			}
		})
	}
}

// A1: the caller's end is such a stop of a run that is in front.
func TestA1_CallersEndEndsTheWaiting(t *testing.T) {
	g := newGate("observed")
	s := open(t, Config{Hooks: g.hooks()})
	req, number := outlived(t, pgroup.Wait)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	id, ended := runs(t, ctx, s, req)
	<-g.reached
	close(g.open)
	leave()
	rec := waitSoon(t, s, id, number)
	<-ended
	if rec.ExitCode == nil || *rec.ExitCode != 3 || len(rec.Cleanup.Survivors) != 0 {
		t.Errorf("record %+v", rec)
	}
	if st, err := platform.ReadStat(number()); err == nil && st.Alive() {
		t.Errorf("%d is left", number())
	}
}

// A1: what is kept is listed, and is nothing that could not be ended.
func TestA1_KeptIsNoFailure(t *testing.T) {
	s := open(t, Config{})
	req, number := outlived(t, pgroup.Keep)
	a := mustStart(t, s, req)
	rec := mustWait(t, s, a.HandleID)
	defer unix.Kill(number(), unix.SIGKILL)
	if !rec.Cleanup.Kept || len(rec.Cleanup.Leftovers) != 1 || len(rec.Cleanup.Survivors) != 1 || len(rec.Cleanup.Signals) != 0 {
		t.Errorf("cleanup %+v", rec.Cleanup)
	}
	if left := s.survivors(a.HandleID); len(left) != 0 {
		t.Errorf("reported as not ended: %+v", left)
	}
	req, _ = outlived(t, pgroup.Kill)
	if rec := mustWait(t, s, mustStart(t, s, req).HandleID); rec.Cleanup.Kept {
		t.Errorf("cleanup %+v", rec.Cleanup)
	}
}

// A5, A6: at level tree a daemon is known as the command's that has left its
// session and wiped its environment, as redis, nginx and postgres do to show a
// title, long before the command ended. Here the program embeds the supervisor.
func TestA6_DaemonWithoutEnvironment(t *testing.T) {
	s := open(t, Config{})
	other := mustStart(t, s, sh("sleep 602")) // nobody is told by exclusion
	file := filepath.Join(t.TempDir(), "pid")
	req := sh("(env -i setsid sh -c 'echo $$ >" + file + "; echo up; exec sleep 603 >/dev/null 2>&1' &); read x")
	req.Containment, req.Stdin = "tree", "pipe"
	a := mustStart(t, s, req)
	id := string(a.HandleID)
	if w, err := s.WaitOutput(t.Context(), id, "", wire.WaitOutput{Pattern: "up"}); err != nil || w.Status != wire.Matched {
		t.Fatalf("%+v, %v", w, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Send(t.Context(), id, "", []byte("\n"), true); err != nil {
		t.Fatal(err)
	}
	rec := mustWait(t, s, a.HandleID)
	if l := rec.Cleanup.Leftovers; len(l) != 1 || l[0].PID != pid || len(rec.Cleanup.Survivors) != 0 {
		t.Errorf("cleanup %+v, want %d as leftover", rec.Cleanup, pid)
	}
	if st, err := platform.ReadStat(pid); err == nil && st.Alive() {
		t.Errorf("%d is left", pid)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if _, err := s.Cancel(t.Context(), string(other.HandleID), "", wire.Cancel{}); err != nil {
		t.Error(err)
	}
}
