package keeper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// hold is the steps about what the supervisor has for its own use.
func (m *manual) hold(verb, id string, r *manualRun, args []string) error {
	switch verb {
	case "shut": // id pipe: our end of it
		return r.read[atoi(args[1])].Close()
	case "hold": // id pipe: a second descriptor in place of the first
		i := atoi(args[1])
		old := r.read[i]
		rc, err := old.SyscallConn()
		if err != nil {
			return err
		}
		_ = rc.Control(func(fd uintptr) { r.read[i] = os.NewFile(uintptr(dup(int(fd))), "pipe") })
		m.link.HoldPipe(id, i, descriptors(r.read[i])[0])
		return old.Close()
	case "holdpidfd": // id
		fd, err := platform.OpenPidfd(r.pid)
		if err != nil {
			return err
		}
		if r.pidfd != nil {
			r.pidfd.Close()
		}
		r.pidfd = os.NewFile(uintptr(fd), "pidfd")
		m.link.HoldPidfd(id, descriptors(r.pidfd)[0])
		return nil
	}
	return errors.New("no such step: " + verb)
}

// Performance 6: a registered run costs the supervisor no descriptor besides
// those it has for itself, and an adopted one none besides the pidfd that it
// takes over.
func TestHoldsNothingTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	h := r.connected()
	r.do("ready")
	before := len(listFDs(t, h.PID))
	r.do("register a 2")
	r.do("spawn a exec sleep 1000")
	r.do("spawned a")
	if got := len(listFDs(t, h.PID)); got != before+4-2 { // four ends, of which the spawn closes two
		t.Errorf("%d descriptors, want %d: %v", got, before+2, listFDs(t, h.PID))
	}
	h = r.kill()
	r.do("holdpidfd a")
	if got := len(listFDs(t, h.PID)); got != before+3 {
		t.Errorf("%d descriptors of an adopted run, want %d: %v", got-before, 3, listFDs(t, h.PID))
	}
	r.do("settled a")
	if got := len(listFDs(t, h.PID)); got != before+3 {
		t.Errorf("%d descriptors once it is settled, want %d: they are not the link's to close", got-before, 3)
	}
	if err := platform.SignalPidfd(mustPidfd(t, h.run(t, "a").PID), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func mustPidfd(t *testing.T, pid int) int {
	t.Helper()
	fd, err := platform.OpenPidfd(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// S4-06: a pipe that the supervisor had closed when it succeeded its keeper keeps
// its place, and the others are found where they are now.
func TestSucceedWithAClosedPipe(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("ready")
	path, open := gate(t)
	r.do("register a 2")
	r.do("spawn a echo out; echo err >&2; read x <%s; exit 3", path)
	r.do("spawned a")
	if got := r.do("read1 a 0").Text; got != "out\n" {
		t.Fatalf("output %q", got)
	}
	r.do("shut a 0")
	r.do("hold a 1")
	r.killKeeper()
	for range 2 { // its successor has them from the estate, and then from its supervisor
		h := r.succeed()
		if got := h.run(t, "a"); got.Pipes != 2 || got.Exit != nil {
			t.Fatalf("run %+v, want two pipes", got)
		}
		if rep := r.try("read1 a 0"); rep.Err != "EOF" {
			t.Errorf("the pipe that was closed: %q, %q, want its end", rep.Text, rep.Err)
		}
		r.do("ready")
		r.do("holdpidfd a")
		r.killKeeper()
	}
	h := r.succeed()
	if got := r.do("read1 a 1").Text; got != "err\n" {
		t.Errorf("output %q", got)
	}
	open()
	checkAway(t, r.exitOf("a"), 3, h.run(t, "a").PID)
	r.do("settled a")
}

// A succession that fails leaves no descriptor to children.
func TestSucceedFailsAndHoldsOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	h := r.connected()
	r.do("ready")
	before := inherited(t, h.PID) // of whoever started the tests
	r.do("register a 2")
	r.killKeeper()
	if rep := r.try("succeed /nonexistent"); rep.Err == "" {
		t.Fatal("executed")
	}
	if got := inherited(t, h.PID); !slices.Equal(got, before) {
		t.Errorf("descriptors %v are left open on exec, before %v", got, before)
	}
}

// inherited lists the descriptors of a process that are not closed on exec.
func inherited(t *testing.T, pid int) (fds []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + itoa(pid) + "/fdinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := os.ReadFile("/proc/" + itoa(pid) + "/fdinfo/" + e.Name())
		if err == nil && !strings.Contains(string(info), "flags:\t02") { // O_CLOEXEC, see proc_pid_fdinfo(5)
			fds = append(fds, e.Name())
		}
	}
	return fds
}

// A number that has got another owner, or none, since the estate was written is
// not taken for what it was.
func TestEstateDropsClosed(t *testing.T) {
	var p, q [2]int
	for _, ends := range []*[2]int{&p, &q} {
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer closeAll(ends[:])
	}
	is, _ := identify(p[0])
	e := estate{Runs: []estateRun{{
		Pipes: []int{p[0], q[0], -1, 1 << 20}, PipeIDs: []fileID{is, is, {}, is}, Pidfd: q[0], PidfdID: &is,
	}, {Pipes: []int{q[0]}, Pidfd: p[0], PidfdID: &is}}}
	e.dropClosed()
	if got, want := fmt.Sprint(e.Runs[0].Pipes, e.Runs[0].Pidfd, e.Runs[1].Pipes, e.Runs[1].Pidfd), fmt.Sprint([]int{p[0], -1, -1, -1}, -1, []int{q[0]}, p[0]); got != want {
		t.Errorf("descriptors %s, want %s", got, want)
	}
}
