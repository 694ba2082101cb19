package keeper

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// spawnMany starts runs run0, run1 … that exit with their number.
func (r *rig) spawnMany(n int) (reps []report, opens []func()) {
	r.t.Helper()
	for i := range n {
		id := fmt.Sprint("run", i)
		rep, open := r.spawnGated(id, fmt.Sprint(i))
		r.do("spawned %s", id)
		reps, opens = append(reps, rep), append(opens, open)
	}
	r.do("register sync 0") // its answer says that the keeper has read so far
	r.do("withdraw sync")
	return reps, opens
}

// S4-31: ends are handed over in the order in which they were, wherever keeper
// and supervisor were meanwhile.
func TestOrderOfExits(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"supervisor stopped", "nobody looks", "no supervisor", "supervisor lives"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			const n = 12
			r := newRig(t, rigConfig{Retry: time.Hour})
			r.connected()
			reps, opens := r.spawnMany(n)
			keeper := r.cmd.Process.Pid
			switch when {
			case "supervisor stopped": // their parent lives and sees nothing
				syscall.Kill(r.sup.PID, syscall.SIGSTOP)
			case "nobody looks": // the keeper is slow
				syscall.Kill(keeper, syscall.SIGSTOP)
				awaitState(t, keeper, 'T')
				r.strike()
				awaitEnd(t, r.sup.PID)
			case "no supervisor":
				r.crash(maxDeaths)
			case "supervisor lives":
				r.kill()
			}
			var want, got []string
			for _, i := range rand.Perm(n) {
				want = append(want, fmt.Sprint("run", i))
				opens[i]()
				awaitEnd(t, reps[i].PID)
			}
			switch when {
			case "supervisor stopped":
				r.strike()
			case "nobody looks":
				syscall.Kill(keeper, syscall.SIGCONT)
			case "no supervisor":
				r.signal(syscall.SIGUSR1)
			case "supervisor lives":
				for i := range n {
					e := r.next("exit").Exit
					got = append(got, e.ID)
					if e.Order != int64(i+1) {
						t.Errorf("exit %+v, want order %d", e, i+1)
					}
				}
				r.strike()
			}
			runs := r.connected().Runs
			slices.SortFunc(runs, func(a, b reportRun) int { return int(a.Exit.Order - b.Exit.Order) })
			var handed []string
			for _, run := range runs {
				handed = append(handed, run.ID)
				if run.Exit.Code != atoi(strings.TrimPrefix(run.ID, "run")) {
					t.Errorf("exit of %s: %+v", run.ID, run.Exit)
				}
			}
			if !slices.Equal(handed, want) || got != nil && !slices.Equal(got, want) {
				t.Errorf("handed over %v, told %v, want %v", handed, got, want)
			}
		})
	}
}

// A stopped supervisor holds up nobody: what does not fit into its socket's
// buffer waits in the keeper, in order.
func TestStoppedSupervisor(t *testing.T) {
	t.Parallel()
	const n = 400 // some 200 fit
	r := newRig(t, rigConfig{})
	r.connected()
	path := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	hold, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	var last int
	for i := range n {
		r.do("register a%d 0", i)
		last = r.do("spawn a%d read x <%s; exit 5", i, path).PID
		r.do("spawned a%d", i)
	}
	r.kill()
	syscall.Kill(r.sup.PID, syscall.SIGSTOP)
	if _, err := hold.WriteString(strings.Repeat("\n", n)); err != nil { // a line for each, also for who opens it only now
		t.Fatal(err)
	}
	awaitEnd(t, last)
	for _, pid := range platform.Children(r.cmd.Process.Pid) {
		if pid != r.sup.PID {
			awaitEnd(t, pid)
		}
	}
	syscall.Kill(r.sup.PID, syscall.SIGCONT)
	for i := range n {
		if e := r.next("exit").Exit; e.Order != int64(i+1) || e.Code != 5 {
			t.Fatalf("exit %+v, want order %d", e, i+1)
		}
	}
}

// awaitState waits until a process is in a state; stops have no event for
// others than the parent.
func awaitState(t testing.TB, pid int, state byte) {
	t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if st, err := platform.ReadStat(pid); err == nil && st.State == state {
			return
		}
	}
	t.Fatalf("process %d does not get into state %c", pid, state)
}

// Orphans of a run's tree are reaped, also behind a pinned zombie; that one
// stays until Settled. The children are listed ten times a second at most.
func TestOrphans(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	leader, openLeader := gate(t)
	var opens []func()
	script := ""
	for range 3 {
		path, open := gate(t)
		opens = append(opens, open)
		script += fmt.Sprintf("sh -c 'read x <%s' & echo $!; ", path)
	}
	r.do("register a 1")
	a := r.do("spawn a %s read x <%s; exit 3", script, leader)
	r.do("spawned a")
	var orphans []int
	for range opens {
		fd, err := platform.OpenPidfd(atoi(strings.TrimSpace(r.do("read1 a 0").Text)))
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		orphans = append(orphans, fd)
	}
	r.kill()
	openLeader()
	if e := r.exitOf("a"); e.Code != 3 {
		t.Fatalf("exit %+v", e)
	}
	began := time.Now()                           // before the first listing that counts
	for i, open := range slices.Backward(opens) { // one that ends during a listing was passed by it
		open()
		awaitReaped(t, orphans[i])
	}
	if d := time.Since(began); d < 190*time.Millisecond {
		t.Errorf("three listings of the children in %v, want 200ms or more", d)
	}
	if st, err := platform.ReadStat(a.PID); err != nil || st.State != 'Z' {
		t.Errorf("the leader is %c (%v), want an unreaped zombie", st.State, err)
	}
	fd, err := platform.OpenPidfd(a.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r.do("settled a")
	awaitReaped(t, fd)
}

// A settled command that still runs is an orphan like others.
func TestSettledWhileAlive(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	a, open := r.spawnGated("a", "3")
	r.do("spawned a")
	fd, err := platform.OpenPidfd(a.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r.kill()
	r.do("settled a")
	if h := r.kill(); len(h.Runs) != 0 {
		t.Errorf("runs %+v", h.Runs)
	}
	open()
	awaitReaped(t, fd)
}

// fds counts the keeper's descriptors.
func (r *rig) fds() int { return len(r.fdList()) }

func (r *rig) fdList() []string {
	r.t.Helper()
	return listFDs(r.t, r.cmd.Process.Pid)
}

// room is the limit that leaves the keeper n descriptors.
func (r *rig) room(n int) uint64 {
	r.t.Helper()
	for fd := 0; ; fd++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", r.cmd.Process.Pid, fd)); err != nil {
			if n == 0 {
				return uint64(fd)
			}
			n--
		}
	}
}

// limit sets the keeper's soft limit of descriptors and returns the old one.
func (r *rig) limit(n uint64) (old uint64) {
	r.t.Helper()
	pid := r.cmd.Process.Pid
	var l unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &l); err != nil {
		r.t.Fatal(err)
	}
	old, l.Cur = l.Cur, n
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &l, nil); err != nil {
		r.t.Fatal(err)
	}
	return old
}

// A22: descriptor exhaustion in the keeper refuses starts and leaks nothing.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("ready")
	r.do("register first 2")
	before := r.fds()

	old := r.limit(r.room(1)) // for one of two
	rep := r.try("register a 2")
	if !rep.Refused || !strings.Contains(rep.Err, "received 1 of 2") {
		t.Errorf("register: %q, want it refused for want of a descriptor", rep.Err)
	}
	r.limit(r.room(0))
	if rep := r.try("register a 2"); !rep.Refused || !strings.Contains(rep.Err, "received 0 of 2") {
		t.Errorf("register: %q, want it refused for want of descriptors", rep.Err)
	}
	r.limit(100) // for what is asked, but not for what it needs later
	last := 0
	for ; ; last++ {
		rep := r.try("register b%d 5", last)
		if rep.Err == "" {
			continue
		}
		if !rep.Refused || !strings.Contains(rep.Err, "would need") {
			t.Errorf("register: %q, want it refused for the reserve", rep.Err)
		}
		break
	}
	if last < 5 || last > 100/6 {
		t.Errorf("took %d runs of 5 pipes with 100 descriptors", last)
	}
	if got, want := r.fds(), before+5*last; got != want {
		t.Errorf("%d descriptors after refusals, want %d: %v", got, want, r.fdList())
	}
	if h := r.kill(); len(h.Runs) != 1+last { // there is enough left to start another supervisor
		t.Errorf("%d runs, want %d", len(h.Runs), 1+last)
	}
	r.do("settled b0")
	r.do("register c 5")
	r.limit(old)
	r.do("register a 2")
}

// Whatever happened, the keeper ends up with what it began with.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("ready")
	before := r.fdList()
	for range 3 {
		path, execute := gate(t)
		r.do("register never 2")
		r.do("register half 1")
		r.do("halfway half %s exit 2", path)
		_, openA := r.spawnGated("a", "1")
		r.do("spawned a")
		_, openB := r.spawnGated("b", "1")
		r.kill()
		execute()
		openA()
		openB()
		r.exitOf("a")
		r.exitOf("b")
		r.exitOf("half")
		for _, id := range []string{"a", "b", "half", "never"} {
			r.do("settled %s", id)
		}
	}
	r.kill()
	if after := r.fdList(); !slices.Equal(after, before) {
		t.Errorf("descriptors %v, want %v", after, before)
	}
	if kids := platform.Children(r.cmd.Process.Pid); len(kids) != 1 {
		t.Errorf("children %v, want only the supervisor", kids)
	}
}

// S4-06: without marks, an orphan that ended while a start is under way may be
// its command: the supervisor may have died just now. It is kept until that is clear.
func TestOrphansDuringAnUnmarkedStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("unmarked")
	path, open := gate(t)
	r.do("register a 1")
	r.do("register b 1")
	b := r.do("spawn b sh -c 'read x <%s' & echo $!", path)
	r.do("spawned b")
	orphan := atoi(strings.TrimSpace(r.do("read1 b 0").Text))
	fd, err := platform.OpenPidfd(orphan)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	awaitEnd(t, b.PID)
	open()
	awaitEnd(t, orphan)
	for _, id := range []string{"c", "d"} { // the keeper has heard of the end
		r.do("register %s 1", id)
		r.do("withdraw %s", id)
	}
	if st, err := platform.ReadStat(orphan); err != nil || st.State != 'Z' {
		t.Errorf("the orphan is %c (%v), want an unreaped zombie", st.State, err)
	}
	r.do("withdraw a")
	awaitReaped(t, fd)
}
