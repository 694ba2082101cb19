package pgroup

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// A command gets further descriptors at exact numbers; what is between them is
// closed in it.
func TestFilesAtExactNumbers(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	g, err := Start(Command{
		Path: "/bin/sh", Args: []string{"sh", "-c", "echo nine >&9; echo four >&4; for n in 9 4 5 8; do p=none; [ -e /proc/$$/fd/$n ] && p=pipe; printf '%s:%s ' $n $p; done"}, Env: os.Environ(),
		Stdout: theirs, Files: map[int]*os.File{9: w, 4: w}, Session: true,
	}, Config{Containment: Grp})
	w.Close()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(r)
	if err != nil || string(said) != "nine\nfour\n" {
		t.Errorf("%q, %v", said, err)
	}
	have, err := io.ReadAll(out)
	if err != nil || string(have) != "9:pipe 4:pipe 5:none 8:none " {
		t.Errorf("descriptors %q, %v", have, err)
	}
	<-g.Done()
	if _, err := g.Reap(); err != nil {
		t.Error(err)
	}
	for _, n := range []int{-1, 0, 2, MaxFile + 1} {
		_, err := Start(Command{Path: "/bin/true", Args: []string{"true"}, Files: map[int]*os.File{n: os.Stdin}}, Config{Containment: Grp})
		var se *StartError
		if !errors.As(err, &se) || se.Step != "descriptor" || se.Path != strconv.Itoa(n) {
			t.Errorf("descriptor %d: %v", n, err)
		}
	}
}

// Holds knows the leader, children, those in sessions of their own, orphans that
// were adopted, and nobody else.
func TestHolds(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		out, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cfg := Config{Containment: m.level, Token: "hto-holds"}
		if m.sub {
			if cfg.Subreaper, err = BecomeSubreaper(false); err != nil {
				t.Fatal(err)
			}
		}
		// They stop: one that is just executing another program has no environment.
		script := `sleep 600 & echo $!; setsid sh -c 'echo $$; kill -STOP $$' & (setsid sh -c 'echo $$; kill -STOP $$' &); sh -c 'echo $$; kill -STOP $$' & sleep 600`
		g, err := Start(Command{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ(), Stdout: theirs, Session: true}, cfg)
		theirs.Close()
		var se *StartError
		if errors.As(err, &se) && se.Step == "cgroup" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		pids := append(lines(t, out, 4), strconv.Itoa(g.PID()))
		for _, p := range pids {
			pid, _ := strconv.Atoi(p)
			if !g.Holds(pid) {
				st, err := platform.ReadStat(pid)
				t.Errorf("%d is not held: %+v, %v", pid, st, err)
			}
		}
		for _, pid := range []int{0, 1, -1, os.Getpid(), os.Getppid()} {
			if g.Holds(pid) {
				t.Errorf("%d is held", pid)
			}
		}
		g.Stop(Ladder{Grace: -1}, nil)
		if _, err := g.Reap(); err != nil {
			t.Error(err)
		}
		if g.Holds(g.PID()) {
			t.Error("the leader is held after it was reaped")
		}
		for _, p := range pids[:4] { // group: what left it
			if pid, _ := strconv.Atoi(p); m.level == Grp {
				_ = unix.Kill(pid, unix.SIGKILL)
				await(t, pid)
			}
		}
	})
}

// lines reads so many lines, in any order.
func lines(t *testing.T, r io.Reader, n int) []string {
	t.Helper()
	text := ""
	for buf := make([]byte, 64); strings.Count(text, "\n") < n; {
		k, err := r.Read(buf)
		if err != nil {
			t.Fatalf("%q, %v", text, err)
		}
		text += string(buf[:k])
	}
	return strings.Fields(text)
}
