package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/supervisor/wire"
)

// READY once a supervisor answers, RELOADING and READY around a replacement,
// STOPPING at a shutdown by TERM, which ends with code 0 within its bound.
func TestNotify(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(nil)
	s.notified("READY=1")
	first := s.hello()
	if first.KeeperPID != s.keeper {
		t.Fatalf("keeper %d, want %d", first.KeeperPID, s.keeper)
	}
	a := s.begin("trap 'exit 3' TERM; echo up; sleep 600 & wait")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Replace(t.Context(), exe); err != nil {
		t.Fatal(err)
	}
	all := s.notified("RELOADING=1")
	if last := all[len(all)-1]; !strings.Contains(last, "\nMONOTONIC_USEC=") || strings.Contains(last, "\n\n") { // notify-reload wants it
		t.Errorf("notified %q", last)
	}
	s.notified("READY=1")
	second := s.next(first)
	if err := unix.Kill(second.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	all = s.notified("READY=1")
	if !strings.HasPrefix(all[0], "STATUS=the supervisor was killed") {
		t.Errorf("notified %q", all)
	}
	began := time.Now()
	if code := s.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.notified("STOPPING=1")
	if d := time.Since(began); d > shutdownGrace {
		t.Errorf("the shutdown took %v", d)
	}
	if err := unix.Kill(a.PID, 0); err != unix.ESRCH {
		t.Errorf("the command: %v, want it gone", err)
	}
}

// HUP replaces the supervisor of a service, and ends a daemon in a terminal.
func TestHangup(t *testing.T) {
	t.Parallel()
	t.Run("service", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		s.start(nil)
		s.notified("READY=1")
		first := s.hello()
		a := s.begin("while [ ! -e " + s.path("go") + " ]; do sleep .01; done; echo out; exit 4")
		if err := unix.Kill(s.keeper, unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		s.notified("RELOADING=1")
		s.notified("READY=1")
		if h := s.next(first); h.KeeperPID != first.KeeperPID {
			t.Errorf("before %+v, after %+v", first, h)
		}
		if err := os.WriteFile(s.path("go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if out := s.end(a, 4); out != "out\n" {
			t.Errorf("output %q", out)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		s.start(nil, "NOTIFY_SOCKET=")
		s.up()
		if code := s.stop(syscall.SIGHUP); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

// The stop by a client is notified of too.
func TestNotifyStopByClient(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(nil)
	s.notified("READY=1")
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.notified("STOPPING=1")
	if code := s.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// The keeper is killed: the service manager is told which process to watch, and
// the watchdog hears of that one.
func TestNotifySuccession(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(nil, "WATCHDOG_USEC=300000")
	s.notified("READY=1")
	s.notified("WATCHDOG=1")
	first := s.hello()
	a := s.begin("while [ ! -e " + s.path("go") + " ]; do sleep .01; done; echo out; exit 4")
	if err := unix.Kill(s.keeper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := s.code(); code != -1 {
		t.Errorf("the keeper's exit code %d", code)
	}
	s.keeper = first.PID
	s.notified(fmt.Sprintf("MAINPID=%d", first.PID))
	s.notified("READY=1")
	for range 3 {
		s.notified("WATCHDOG=1")
	}
	if h := s.next(first); h.KeeperPID != first.PID {
		t.Errorf("hello %+v", h)
	}
	if b, err := os.ReadFile(s.path("state/lock")); err != nil || strings.TrimSpace(string(b)) != strconv.Itoa(first.PID) {
		t.Errorf("the lock names %q, %v, want %d", b, err, first.PID)
	}
	if err := os.WriteFile(s.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := s.end(a, 4); out != "out\n" {
		t.Errorf("output %q", out)
	}
	if code := s.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.notified("STOPPING=1")
}

// A watchdog of another process is none of ours.
func TestWatchdogOfAnother(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(nil, "WATCHDOG_USEC=1000", "WATCHDOG_PID=1")
	s.notified("READY=1")
	s.run("sleep 0.1")
	s.stop(syscall.SIGTERM)
	for _, m := range s.notified("STOPPING=1") {
		if strings.Contains(m, "WATCHDOG") {
			t.Errorf("notified %q", m)
		}
	}
}

// A service manager that does not read does not stop the daemon.
func TestNotifyNobodyReads(t *testing.T) {
	t.Parallel()
	s := newService(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: s.path("deaf")}); err != nil {
		t.Fatal(err)
	}
	s.start(nil, "NOTIFY_SOCKET="+s.path("deaf"), "WATCHDOG_USEC=3000")
	s.up()
	before := s.hello()
	for range 3 {
		if err := unix.Kill(before.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		before = s.next(before)
	}
	if code := s.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// send --close ends the stdin of the command, also when the supervisor and the
// keeper that held it as well were killed before.
func TestSendCloses(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(nil)
	s.notified("READY=1")
	before := s.hello()
	start := func() *wire.Started {
		a, err := s.Start(t.Context(), wire.Start{Command: []string{"/bin/cat"}, Env: []string{"PATH=/usr/bin:/bin"}, Session: "t", Stdin: "pipe"})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	send := func(a *wire.Started) {
		t.Helper()
		if _, err := s.Send(t.Context(), string(a.HandleID), []byte("hi\n"), true); err != nil {
			t.Fatal(err)
		}
		if out := s.end(a, 0); out != "hi\n" {
			t.Errorf("output %q", out)
		}
	}
	a, b := start(), start()
	send(a)
	if err := unix.Kill(before.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	before = s.next(before)
	c := start()
	send(b)
	if err := unix.Kill(s.keeper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.code()
	s.keeper = before.PID
	s.next(before)
	send(c)
}
