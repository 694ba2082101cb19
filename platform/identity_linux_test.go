package platform

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const statTail = " 2 3 4 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 123456 1 2"

func TestParseStat(t *testing.T) {
	for _, comm := range []string{"sleep", "", "a b", ") R 1 1 1", "(", "((x))", "x) Z 9 9 9 9", "\n", "\xff\xfe", "0123456789abcde"} {
		got, ok := parseStat([]byte("17 (" + comm + ") S" + statTail + "\n"))
		want := Stat{PID: 17, Comm: comm, State: 'S', PPID: 2, PGID: 3, SID: 4, Threads: 9, StartTicks: 123456}
		if !ok || got != want {
			t.Errorf("command %q: %+v, %v", comm, got, ok)
		}
	}
	good := "17 (x) S" + statTail
	for _, bad := range []string{"", "17", "(", ")", "()", "1 ()", "x (y) S" + statTail, "17 (x S" + statTail, "17 (x) SS" + statTail,
		good[:strings.LastIndex(good, " 123456")], strings.Replace(good, "123456", "-1", 1), strings.Replace(good, " 9 ", " x ", 1)} {
		if st, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%q gave %+v", bad, st)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("x) S (", uint32(1), uint64(7))
	f.Fuzz(func(t *testing.T, comm string, pid uint32, start uint64) {
		line := fmt.Sprintf("%d (%s) R 1 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0", pid, comm, start)
		st, ok := parseStat([]byte(line))
		if !ok || st.Comm != comm || st.PID != int(pid) || st.StartTicks != start {
			t.Errorf("%q: %+v, %v", line, st, ok)
		}
		parseStat([]byte(comm)) // must not panic
	})
}

func TestAlive(t *testing.T) {
	for _, x := range []struct {
		state   byte
		threads int
		want    bool
	}{{'R', 1, true}, {'S', 1, true}, {'D', 1, true}, {'T', 1, true}, {'t', 1, true}, {'I', 1, true},
		{'Z', 1, false}, {'Z', 0, false}, {'Z', 2, true}, {'X', 1, false}, {0, 0, false}} {
		if got := (Stat{State: x.state, Threads: x.threads}).Alive(); got != x.want {
			t.Errorf("state %c with %d threads: %v", x.state, x.threads, got)
		}
	}
}

func TestLiveness(t *testing.T) {
	cmd := helperCmd(t, "hang")
	startReady(t, cmd)
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := func(f func(*Identity)) Identity { x := id; f(&x); return x }
	for name, x := range map[string]struct {
		id   Identity
		want Liveness
	}{
		"itself":        {id, Live},
		"another start": {other(func(x *Identity) { x.StartTicks++ }), Exited},
		"another boot":  {other(func(x *Identity) { x.BootID = "x" }), Exited},
		"no boot":       {other(func(x *Identity) { x.BootID = "" }), Unverifiable},
		"none":          {Identity{}, Unverifiable},
		"no such":       {other(func(x *Identity) { x.PID = 1<<22 + 1 }), Exited},
	} {
		if got := x.id.Liveness(); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
	cmd.Process.Kill()
	fd, err := OpenPidfd(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if exit, err := AwaitExit(cmd.Process.Pid); err != nil || exit != (Exit{Code: -1, Signal: syscall.SIGKILL}) {
		t.Errorf("ended by %+v, %v", exit, err)
	}
	if got := id.Liveness(); got != Exited {
		t.Errorf("a zombie: %s", got)
	}
	if exit, ended, err := PeekExit(fd); !ended || err != nil || exit.Signal != syscall.SIGKILL {
		t.Errorf("peeked %+v, %v, %v", exit, ended, err)
	}
	if _, known := ReapedExit(fd); known {
		t.Error("a zombie counts as reaped")
	}
	cmd.Wait()
	if exit, known := ReapedExit(fd); known && exit.Signal != syscall.SIGKILL || !known && exit.Code != -1 {
		t.Errorf("reaped: %+v, %v", exit, known)
	}
	if _, _, err := PeekExit(fd); !errors.Is(err, unix.ECHILD) {
		t.Errorf("peek after the reaping: %v", err)
	}
	if err := SignalPidfd(fd, 0); !errors.Is(err, ErrGone) {
		t.Errorf("signal after the reaping: %v", err)
	}
}

// wait4(2) reads 0 and below as any child: none of these may take one.
func TestReapTakesOneChildOnly(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "exit 3")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := AwaitExit(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{0, -1, -cmd.Process.Pid} {
		if ReapIfEnded(pid) {
			t.Errorf("ReapIfEnded(%d) took one", pid)
		}
		if _, _, err := Reap(pid); !errors.Is(err, unix.EINVAL) {
			t.Errorf("Reap(%d): %v", pid, err)
		}
	}
	if FirstZombie() != cmd.Process.Pid || !HasChildren() {
		t.Errorf("first zombie %d", FirstZombie())
	}
	fd, err := OpenPidfd(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if !ReapPidfd(fd) || ReapPidfd(fd) {
		t.Error("ReapPidfd must take it, once")
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was not reaped")
	}
}

func TestCommandLineAndEnviron(t *testing.T) {
	cmd := helperCmd(t, "hang")
	cmd.Args = []string{"a b", "", strings.Repeat("ü", 200)}
	cmd.Env = append(cmd.Env, "X_EMPTY=", "X_A=1=2")
	startReady(t, cmd)
	pid := cmd.Process.Pid
	if got, want := CommandLine(pid, 8), "a b  ü…"; got != want {
		t.Errorf("command line %q, want %q", got, want)
	}
	for name, want := range map[string]string{"X_EMPTY": "", "X_A": "1=2"} {
		if got, ok, err := Environ(pid, name); got != want || !ok || err != nil {
			t.Errorf("%s: %q, %v, %v", name, got, ok, err)
		}
	}
	if _, ok, err := Environ(pid, "X"); ok || err != nil {
		t.Errorf("X: %v, %v", ok, err)
	}
	if got := Children(os.Getpid()); len(got) != 1 || got[0] != pid {
		t.Errorf("children %v, want %d", got, pid)
	}
}
