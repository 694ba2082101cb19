//go:build linux

package chaos

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/supervisor/wire"
)

func shell(script string) wire.Start {
	return wire.Start{Command: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Session: "faults"}
}

// killBoth ends keeper and supervisor at one moment, as a crash of the machine
// would not: commands live on.
func (d *daemon) killBoth(t *testing.T) {
	t.Helper()
	hello, err := d.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, second := d.keeper, hello.PID
	if rand.IntN(2) == 0 {
		first, second = second, first
	}
	_ = unix.Kill(first, unix.SIGSTOP) // so that it does nothing about the other's end
	_ = unix.Kill(second, unix.SIGKILL)
	_ = unix.Kill(first, unix.SIGKILL)
	d.buried(d.keeper)
	d.keeper = 0
	if !waitGone(hello.PID, 5*time.Second) {
		t.Fatal("the supervisor lives")
	}
	d.Close()
}

// A7, G23, S2-18, S3-82: keeper and supervisor are both killed. What lives is
// owned again, without its output; what ended unseen is lost, at once; nothing
// runs twice.
func TestG23_KeeperAndSupervisorAreKilled(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir)
	lives, err := d.Start(t.Context(), shell("sleep 600"))
	if err != nil {
		t.Fatal(err)
	}
	ends, err := d.Start(t.Context(), shell("sleep 600; exit 5"))
	if err != nil {
		t.Fatal(err)
	}
	d.killBoth(t)
	_ = unix.Kill(-ends.GroupID, unix.SIGKILL)
	if !waitGone(ends.PID, 5*time.Second) {
		t.Fatal("the fixture lives")
	}
	d = startDaemon(t, dir)
	w, err := d.Wait(t.Context(), string(ends.HandleID), 10*time.Second)
	if err != nil || w.Record.Status != handles.Lost || w.Record.Error == "" {
		t.Errorf("the one that ended: %+v, %v", w.Record, err)
	}
	rec, err := d.Show(t.Context(), string(lives.HandleID))
	if err != nil || rec.Status != handles.Running || rec.PID != lives.PID {
		t.Fatalf("the one that lives: %+v, %v", rec, err)
	}
	c, err := d.Cancel(t.Context(), string(lives.HandleID), wire.Cancel{})
	if err != nil || c.Record.Status != handles.Killed && c.Record.Status != handles.Lost || !waitGone(lives.PID, time.Second) {
		t.Errorf("cancel: %+v, %v", c, err)
	}
}

// A9: a stale number in the state directory names a stranger: the daemon
// starts, and the stranger gets no signal.
func TestA9_StaleNumber(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir)
	d.killBoth(t)
	stranger := exec.Command("sleep", "618")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()
	files, _ := filepath.Glob(filepath.Join(d.state(), "*lock*"))
	if len(files) == 0 {
		t.Fatal("no lock file")
	}
	for _, f := range files {
		if err := os.WriteFile(f, []byte(strconv.Itoa(stranger.Process.Pid)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d = startDaemon(t, dir)
	a, err := d.Start(t.Context(), shell("exit 0"))
	if err != nil {
		t.Fatal(err)
	}
	if w, err := d.Wait(t.Context(), string(a.HandleID), 0); err != nil || w.Record.Status != handles.Completed {
		t.Errorf("%+v, %v", w, err)
	}
	if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the stranger: %v", err)
	}
}

// A daemon that is replaced keeps its commands and their output (A22: no second
// copy), and answers throughout.
func TestReplaceKeepsCommands(t *testing.T) {
	d := startDaemon(t, shortDir(t))
	w := work{n: 1, lines: 2000, code: 9}
	req := w.request()
	req.Command[2] = "sleep 0.3; " + req.Command[2]
	a, err := d.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	before, err := d.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Replace(t.Context(), procsupd); err != nil {
		t.Fatal(err)
	}
	got, err := d.Wait(t.Context(), string(a.HandleID), 0)
	if err == nil {
		err = w.check(a, got.Record)
	}
	if err != nil {
		t.Error(err)
	}
	after, err := d.Hello(t.Context())
	if err != nil || after.Generation <= before.Generation || after.KeeperPID != before.KeeperPID {
		t.Errorf("before %+v, after %+v, %v", before, after, err)
	}
}
