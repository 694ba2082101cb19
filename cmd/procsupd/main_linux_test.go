package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// mainVar makes the test binary procsupd.
const mainVar = "PROCSUPD_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVar) != "" {
		main()
		return
	}
	// What a keeper that was killed leaves comes to us: the next keeper too.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const patience = 20 * time.Second

// A service is a daemon below a service manager, which is the test.
type service struct {
	*client.Client
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	keeper int
	told   chan string // what it notified of
	ready  *os.File
	log    logFile
}

// A logFile is what the daemon's processes write to: unlike a pipe to us it
// keeps no Wait from returning when the first of them is dead.
type logFile struct{ *os.File }

func (l logFile) String() string {
	b, _ := os.ReadFile(l.Name())
	return string(b)
}

// newService makes what a daemon needs and starts none.
func newService(t *testing.T) *service {
	t.Helper()
	dir, err := os.MkdirTemp("", "pm") // short, for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &service{t: t, dir: dir, told: make(chan string, 1000)}
	if s.log.File, err = os.OpenFile(s.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.log.Close() })
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path("notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() { // ends with the socket
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			s.told <- string(buf[:n])
		}
	}()
	return s
}

func (s *service) path(name string) string { return filepath.Join(s.dir, name) }

// start starts the daemon in the way of a service manager: by sh, as LISTEN_PID
// is to be its own number.
func (s *service) start(files []*os.File, env ...string) {
	s.t.Helper()
	script := `LISTEN_PID=$$; [ -z "$OTHER" ] || LISTEN_PID=1; export LISTEN_PID; exec "$0" "$@"`
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Close()
	s.ready = r
	s.t.Cleanup(func() { r.Close() })
	s.cmd = exec.Command("/bin/sh", "-c", script, exe, "--socket", s.path("sock"), "--state", s.path("state"), "--ready-fd", strconv.Itoa(3+len(files)))
	s.cmd.Env = append(os.Environ(), mainVar+"=1", "GORACE=atexit_sleep_ms=0", "GOCOVERDIR="+s.t.TempDir(), "NOTIFY_SOCKET="+s.path("notify"))
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.ExtraFiles, s.cmd.Stderr = append(slices.Clone(files), w), s.log.File
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.keeper = s.cmd.Process.Pid
	s.Client = client.New(client.Config{Socket: s.path("sock"), State: s.path("state"), Patience: patience})
	s.t.Cleanup(func() {
		s.Close()
		if s.keeper != 0 {
			s.stop(syscall.SIGTERM)
		}
		if s.t.Failed() {
			s.t.Logf("log of the daemon:\n%s", s.log)
		}
	})
}

// up waits until the daemon answers, where nothing is notified.
func (s *service) up() {
	s.t.Helper()
	_ = s.ready.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 1000)
	if n, err := s.ready.Read(b); string(b[:n]) != "ready\n" {
		s.t.Fatalf("the daemon said %q, %v", b[:n], err)
	}
}

// stop sends a signal to the keeper and returns its exit code.
func (s *service) stop(sig syscall.Signal) int {
	s.t.Helper()
	if err := unix.Kill(s.keeper, sig); err != nil {
		s.t.Error(err)
	}
	return s.code()
}

func (s *service) code() int {
	pid := s.keeper
	s.keeper = 0
	if pid == s.cmd.Process.Pid {
		_ = s.cmd.Wait()
		return s.cmd.ProcessState.ExitCode()
	}
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			return ws.ExitStatus()
		}
	}
}

// notified waits for a datagram with a line, and returns those before it too.
func (s *service) notified(line string) []string {
	s.t.Helper()
	var all []string
	timeout := time.After(patience)
	for {
		select {
		case m := <-s.told:
			all = append(all, m)
			if slices.Contains(strings.Split(m, "\n"), line) {
				return all
			}
		case <-timeout:
			s.t.Fatalf("%q was not notified of, but %q; log:\n%s", line, all, s.log)
		}
	}
}

func (s *service) hello() *wire.Hello {
	s.t.Helper()
	h, err := s.Hello(s.t.Context())
	if err != nil {
		s.t.Fatalf("%v; log:\n%s", err, s.log)
	}
	return h
}

// next waits for another supervisor's answer.
func (s *service) next(before *wire.Hello) *wire.Hello {
	s.t.Helper()
	for {
		if h := s.hello(); h.Generation > before.Generation {
			return h
		}
	}
}

// run runs a command to its end and returns what it wrote.
func (s *service) run(script string, env ...string) string {
	s.t.Helper()
	a := s.begin(script, env...)
	return s.end(a, 0)
}

func (s *service) begin(script string, env ...string) *wire.Started {
	s.t.Helper()
	a, err := s.Start(s.t.Context(), wire.Start{Command: []string{"/bin/sh", "-c", script}, Env: append([]string{"PATH=/usr/bin:/bin"}, env...), Session: "t"})
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *service) end(a *wire.Started, code int) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	w, err := s.Wait(ctx, string(a.HandleID), 0)
	if err != nil || w.Record.ExitCode == nil || *w.Record.ExitCode != code {
		s.t.Fatalf("wait: %+v, %v, want exit code %d", w, err, code)
	}
	out, err := os.ReadFile(a.StdoutPath)
	if err != nil && w.Record.Status != handles.Completed {
		s.t.Fatal(err)
	}
	return string(out)
}
