package mcp

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// hello is who answers, once it is a supervisor of a later generation.
func (r *rig) hello() *wire.Hello {
	r.t.Helper()
	h, err := r.client.Hello(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// killed kills a process and waits until it is gone.
func killed(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Signal(syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !platform.AwaitGone(pid, long) {
		t.Fatalf("%d is not gone", pid)
	}
}

// TestSupervisorKilled: a SIGKILL of the supervisor in the middle of calls is
// not seen by them; the session, its commands and what is owed go on.
func TestSupervisorKilled(t *testing.T) {
	r := newRig(t)
	a := r.connect(nil)
	h := a.held("echo late; exit 6")
	owed := r.finished(a, 1)
	waited := make(chan *handleView, 1)
	go func() { // ends with the command
		var v handleView
		if _, err := a.call(t.Context(), "wait", args{"handle": h}, &v); err != nil {
			t.Error(err)
		}
		waited <- &v
	}()
	was := r.hello()
	killed(t, was.PID)
	if now := r.hello(); now.PID == was.PID || now.KeeperPID != was.KeeperPID {
		t.Fatalf("%+v after %+v", now, was)
	}
	must[handleView](a, "write_stdin", args{"handle": h, "text": "go\n"})
	if v := <-waited; v.ExitCode == nil || *v.ExitCode != 6 || v.Stdout == nil || v.Stdout.Text != "late\n" {
		t.Errorf("%+v", v)
	}
	b, _ := must[takeOutput](a, "take_finished", nil)
	if len(b.Finished) != 1 || b.Finished[0].Handle != owed[0] {
		t.Errorf("owed: %+v, want %v", b, owed)
	}
	last := a.background("exec sleep 600")
	a.Close() // the new supervisor knows whose it is
	if rec := r.ended(last); rec.Cause != "session_closed" {
		t.Errorf("%s by %s", rec.Status, rec.Cause)
	}
}

// TestBothKilled: with keeper and supervisor killed the next call starts a
// daemon, which says what became of the commands.
func TestBothKilled(t *testing.T) {
	r := newRig(t)
	a := r.connect(nil)
	h := a.background("exec sleep 600")
	was := r.hello()
	killed(t, was.KeeperPID)
	killed(t, was.PID)
	v, res := must[handleView](a, "run_command", args{"command": "echo again"})
	if v.Stdout.Text != "again\n" {
		t.Errorf("%s", text(res))
	}
	l, _ := must[listOutput](a, "list", args{"all": true})
	for _, old := range l.Handles {
		if old.Handle == h && old.Status != "running" && old.Status != "lost" {
			t.Errorf("%+v", old)
		}
	}
	if len(l.Handles) != 2 {
		t.Errorf("%+v", l)
	}
	must[handleView](a, "cancel", args{"handle": h, "grace_s": 1})
	a.Close()
	r.ended(h)
}

// TestDaemonStopped: a daemon that was stopped is started again by the next call.
func TestDaemonStopped(t *testing.T) {
	r := newRig(t)
	a := r.connect(nil)
	h := a.background("exec sleep 600")
	if err := r.client.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, _ := must[handleView](a, "run_command", args{"command": "echo again"}); v.Stdout.Text != "again\n" {
		t.Errorf("%+v", v)
	}
	b, _ := must[takeOutput](a, "take_finished", nil) // D3: what was owed stays owed
	if len(b.Finished) != 1 || b.Finished[0].Handle != h || handles.Cause(b.Finished[0].Cause) != handles.CauseShutdown {
		rec, err := r.client.Show(t.Context(), h)
		t.Errorf("%+v, of %+v %v", b, rec, err)
	}
}

// TestSessionClosedByAnother: then there is a new one, also for what is started
// at the same moment.
func TestSessionClosedByAnother(t *testing.T) {
	r := newRig(t)
	a := r.connect(nil)
	h := a.background("exec sleep 600")
	rec, err := r.client.Show(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.CloseSession(t.Context(), rec.SessionID, wire.EndSession{}); err != nil {
		t.Fatal(err)
	}
	next := a.background("exec sleep 600")
	if v, _ := must[handleView](a, "wait", args{"handle": h}); v.Running {
		t.Errorf("%+v", v)
	}
	if why := a.refused("wait", args{"handle": h + "x"}); !strings.Contains(why, "list shows") {
		t.Error(why)
	}
	a.Close()
	r.ended(next)
}

// TestForeignHandle: of another's handle the end is seen, and not taken.
func TestForeignHandle(t *testing.T) {
	r := newRig(t)
	a, b := r.connect(nil), r.connect(nil)
	h := r.finished(a, 1)[0]
	if v, _ := must[handleView](b, "wait", args{"handle": h}); v.Running {
		t.Errorf("%+v", v)
	}
	if v, _ := must[handleView](b, "cancel", args{"handle": h}); v.Running {
		t.Errorf("%+v", v)
	}
	if got, _ := must[takeOutput](a, "take_finished", nil); len(got.Finished) != 1 {
		t.Errorf("its owner has %+v", got)
	}
}
