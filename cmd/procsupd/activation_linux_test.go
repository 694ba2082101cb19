package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// passed is a socket as a service manager makes one, with a mode of its own.
func (s *service) passed() *os.File {
	s.t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path("passed"), Net: "unix"})
	if err != nil {
		s.t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	l.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { f.Close() })
	if err := os.Chmod(s.path("passed"), 0o666); err != nil {
		s.t.Fatal(err)
	}
	return f
}

// A passed socket is served as it is, by every supervisor and below every
// keeper; its path and mode are its owner's. A client finds it by the state
// directory.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start([]*os.File{s.passed()}, "LISTEN_FDS=1", "LISTEN_FDNAMES=procsup.socket")
	s.notified("READY=1")
	before := s.hello()
	check := func(how string) {
		t.Helper()
		st, err := os.Lstat(s.path("passed"))
		if err != nil || st.Mode() != os.ModeSocket|0o666 {
			t.Errorf("%s: the socket: %v, %v", how, st.Mode(), err)
		}
		if _, err := os.Lstat(s.path("sock")); !os.IsNotExist(err) {
			t.Errorf("%s: a socket of our own: %v", how, err)
		}
		if got := s.run("echo hello"); got != "hello\n" {
			t.Errorf("%s: output %q", how, got)
		}
	}
	check("at first")
	if err := unix.Kill(before.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	before = s.next(before)
	check("supervisor killed")
	exe, _ := os.Executable()
	if err := s.Replace(t.Context(), exe); err != nil {
		t.Fatal(err)
	}
	before = s.next(before)
	check("replaced")
	if err := unix.Kill(s.keeper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.code()
	s.keeper = before.PID
	s.next(before)
	check("keeper killed")
	if code := s.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if st, err := os.Lstat(s.path("passed")); err != nil || st.Mode() != os.ModeSocket|0o666 {
		t.Errorf("after the end: %v", err)
	}
}

// What is no socket of ours is refused, and nothing is bound instead.
func TestSocketActivationRefuses(t *testing.T) {
	t.Parallel()
	tcp := func(s *service) []*os.File {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		return []*os.File{f}
	}
	null := func(*service) []*os.File {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		return []*os.File{f}
	}
	for name, tc := range map[string]struct {
		files func(*service) []*os.File
		want  string
	}{
		"tcp":     {tcp, "only on sockets of the unix domain"},
		"no":      {null, "no socket that listens"},
		"several": {func(s *service) []*os.File { return append(null(s), s.passed()) }, "2 sockets were passed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			files := tc.files(s)
			s.start(files, "LISTEN_FDS="+strconv.Itoa(len(files)))
			for _, f := range files {
				f.Close()
			}
			if code := s.code(); code != exitProcsup || !strings.Contains(s.log.String(), tc.want) {
				t.Errorf("exit code %d, log %q", code, s.log)
			}
		})
	}
}

// Another's sockets are left alone: LISTEN_PID is not ours.
func TestSocketActivationOfAnother(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start([]*os.File{s.passed()}, "LISTEN_FDS=1", "OTHER=1")
	s.up()
	s.run("true")
	if _, err := os.Lstat(s.path("sock")); err != nil {
		t.Errorf("our own socket: %v", err)
	}
}

// A command has the environment and the descriptors that its client gave it,
// and nothing of what the service manager told the daemon.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	s := newService(t)
	other, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s.start([]*os.File{s.passed(), other}, "LISTEN_FDS=1", "LISTEN_FDNAMES=x", "WATCHDOG_USEC=10000000", "SECRET=1")
	s.notified("READY=1")
	before := s.hello()
	script := "/usr/bin/env; ls /proc/self/fd"
	check := func(how string) {
		t.Helper()
		out := s.run(script, "GIVEN=1")
		for line := range strings.Lines(out) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch name {
			case "PATH", "GIVEN", "PROCSUP_RUN", "PROCSUP_SESSION", "PWD", "SHLVL", "OLDPWD", "_", "0", "1", "2", "3": // 3: ls reads the directory
			default:
				t.Errorf("%s: the command has %q", how, line)
			}
		}
		for _, pid := range []int{s.hello().PID, s.hello().KeeperPID} {
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err != nil || pid != s.cmd.Process.Pid && (bytes.Contains(env, []byte("NOTIFY_SOCKET")) || bytes.Contains(env, []byte("LISTEN_")) || bytes.Contains(env, []byte("WATCHDOG_"))) {
				t.Errorf("%s: environment of %d: %q, %v", how, pid, env, err)
			}
		}
	}
	check("at first")
	if err := unix.Kill(s.keeper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.code()
	s.keeper = before.PID
	s.next(before)
	check("keeper killed")
}

// systemd's own tool passes the socket.
func TestSystemdSocketActivate(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		t.Skip(err)
	}
	s := newService(t)
	exe, _ := os.Executable()
	s.cmd = exec.Command(tool, "--listen="+s.path("passed"), "-E", mainVar+"=1", "-E", "NOTIFY_SOCKET="+s.path("notify"), exe, "--socket", s.path("sock"), "--state", s.path("state"))
	s.cmd.Stderr = s.log.File
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.keeper = s.cmd.Process.Pid
	var c net.Conn
	for until := time.Now().Add(patience); c == nil; { // the tool starts us at the first connection
		if c, err = net.Dial("unix", s.path("passed")); err != nil && time.Now().After(until) {
			t.Fatalf("%v, log %s", err, s.log)
		}
	}
	defer c.Close()
	s.notified("READY=1")
	if code := s.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d, log %s", code, s.log)
	}
	if _, err := os.Lstat(filepath.Join(s.dir, "sock")); !os.IsNotExist(err) {
		t.Errorf("a socket of our own: %v", err)
	}
}
