package keeper

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// killKeeper kills the keeper alone; its supervisor is told.
func (r *rig) killKeeper() {
	r.t.Helper()
	if err := syscall.Kill(r.keeper, syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	r.next("gone")
}

// succeed makes the supervisor the keeper and returns its supervisor's hand-over.
func (r *rig) succeed() report {
	r.t.Helper()
	old := r.sup
	r.tell("succeed")
	h := r.connected()
	if h.Keeper != old.PID || h.Generation != old.Generation+1 {
		r.t.Errorf("keeper %d, generation %d; want process %d, generation %d", h.Keeper, h.Generation, old.PID, old.Generation+1)
	}
	return h
}

// The supervisor goes on as keeper: its commands are still its children, their
// pipes stay open, and how they end is known.
func TestSucceed(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("ready")
	a, openA := r.spawnGated("a", "3")
	r.do("spawned a")
	b, openB := r.spawnGated("b", "4") // nobody said Spawned
	r.do("register never 1")
	r.do("register gone 1")
	gone := r.do("spawn gone exit 6")
	r.do("spawned gone")
	awaitEnd(t, gone.PID)
	r.do("reap gone")
	r.do("settled gone")
	r.do("unmarked")
	c, openC := r.spawnGated("c", "5")
	r.do("spawned c")
	r.do("register drop 1")
	r.do("withdraw drop")
	openC() // has ended, and is not settled
	awaitEnd(t, c.PID)
	r.killKeeper()
	openA() // ends while there is no keeper
	awaitEnd(t, a.PID)
	h := r.succeed()
	if len(h.Runs) != 4 {
		t.Errorf("%d runs, want 4: %+v", len(h.Runs), h.Runs)
	}
	for id, want := range map[string]struct{ pid, code int }{"a": {a.PID, 3}, "c": {c.PID, 5}} {
		got := h.run(t, id)
		if got.PID != want.pid || got.Exit == nil || got.Exit.Code != want.code || got.Exit.Lost != "" || got.Pidfd || got.Pipes != 2 {
			t.Errorf("run %+v exit %+v, want %+v", got, got.Exit, want)
		}
	}
	if got := h.run(t, "b"); got.PID != b.PID || got.Exit != nil || got.Pending {
		t.Errorf("run %+v, want pid %d", got, b.PID)
	}
	if got := h.run(t, "never"); got.PID != 0 || got.Exit != nil || got.Pending {
		t.Errorf("run %+v, want it never spawned", got)
	}
	for _, id := range []string{"a", "b", "c"} {
		if got := r.do("read %s 0", id).Text; got != "hello outer/"+id+"\n" {
			t.Errorf("output of %s: %q", id, got)
		}
	}
	openB()
	if e := r.exitOf("b"); e.Code != 4 || e.PID != b.PID || e.Lost != "" {
		t.Errorf("exit %+v, want 4", e)
	}
	fd, err := platform.OpenPidfd(b.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, id := range []string{"a", "b", "c", "never"} {
		r.do("settled %s", id)
	}
	awaitReaped(t, fd)
	if h := r.kill(); len(h.Runs) != 0 || h.Keeper != r.keeper {
		t.Errorf("runs %+v of keeper %d", h.Runs, h.Keeper)
	}
}

// What the keeper that died was the parent of is known by its pidfd alone; the
// kernel tells how it ended if it was told to by whoever reaped it.
func TestSucceedWithAdopted(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("ready")
	ended, openEnded := r.spawnGated("ended", "3")
	told, openTold := r.spawnGated("told", "4")
	alive, openAlive := r.spawnGated("alive", "5")
	for _, id := range []string{"ended", "told", "alive"} {
		r.do("spawned %s", id)
	}
	r.kill() // now they are the keeper's
	r.do("ready")
	openTold()
	if e := r.exitOf("told"); e.Code != 4 {
		t.Fatalf("exit %+v", e)
	}
	r.killKeeper()
	openEnded() // while there is no keeper
	awaitEnd(t, ended.PID)
	h := r.succeed()
	if got := h.run(t, "told"); got.PID != told.PID || got.Exit == nil || got.Exit.Code != 4 || !got.Pidfd || got.Pipes != 2 {
		t.Errorf("run %+v exit %+v", got, got.Exit)
	}
	if got := h.run(t, "alive"); got.PID != alive.PID || got.Exit != nil || !got.Pidfd {
		t.Errorf("run %+v exit %+v", got, got.Exit)
	}
	e := h.run(t, "ended").Exit
	if e == nil { // its new parent takes its time
		got := r.exitOf("ended")
		e = &got
	}
	checkAway(t, *e, 3, ended.PID)
	openAlive()
	last := r.exitOf("alive")
	if checkAway(t, last, 5, alive.PID); e.Order != 2 || last.Order != 3 { // 1: the one that the dead keeper told
		t.Errorf("order %d and %d, want 2 and 3", e.Order, last.Order)
	}
	if got := r.do("read alive 0").Text; got != "hello outer/alive\n" {
		t.Errorf("output %q", got)
	}
	r.do("settled ended")
	if h := r.kill(); len(h.Runs) != 2 || h.run(t, "alive").Exit == nil || !h.run(t, "alive").Pidfd {
		t.Errorf("runs %+v", h.Runs)
	}
}

// checkAway checks the end of a command whose parent was a keeper that died.
func checkAway(t *testing.T, e Exit, code, pid int) {
	t.Helper()
	if e.PID != pid || (e.Code != code || e.Lost != "") && tellsExits(t) {
		t.Errorf("exit %+v, want %d of %d", e, code, pid)
	}
}

// tellsExits reports whether this kernel tells how a process ended that another
// has reaped (Linux 6.15).
func tellsExits(t *testing.T) bool {
	t.Helper()
	p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := platform.OpenPidfd(p.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	_, _ = p.Wait()
	_, ok := platform.ExitAfterReap(fd)
	return ok
}

// One keeper after the other is killed.
func TestSucceedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("ready")
	a, openA := r.spawnGated("a", "3")
	r.do("spawned a")
	for range 3 {
		r.killKeeper()
		h := r.succeed()
		if got := h.run(t, "a"); got.PID != a.PID || got.Pipes != 2 || got.Exit != nil {
			t.Errorf("run %+v", got)
		}
		r.do("ready")
	}
	openA()
	checkAway(t, r.exitOf("a"), 3, a.PID)
	r.do("settled a")
	if h := r.kill(); len(h.Runs) != 0 {
		t.Errorf("runs %+v", h.Runs)
	}
}

// A start that was cut short by the death of a supervisor, and its keeper died
// before it knew more: the mark tells.
func TestSucceedWhilePending(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("ready")
	first, execute := gate(t)
	second, open := gate(t)
	r.do("register a 1")
	r.do("register other 1")
	pid := r.do("halfway a %s read x <%s; exit 5", first, second).PID
	h := r.kill()
	if !h.run(t, "a").Pending || !h.run(t, "other").Pending {
		t.Fatalf("runs %+v, want them pending", h.Runs)
	}
	r.killKeeper()
	h = r.succeed()
	if got := h.run(t, "a"); got.PID != pid || got.Pending || !got.Pidfd {
		t.Errorf("run %+v, want pid %d", got, pid)
	}
	if got := h.run(t, "other"); got.PID != 0 || got.Exit == nil || got.Exit.Lost == "" {
		t.Errorf("run %+v, exit %+v, want it lost: it may have ended unseen", got, got.Exit)
	}
	execute()
	open()
	checkAway(t, r.exitOf("a"), 5, pid)
}

// The state lock is never free while one of the two lives, and no command has
// a descriptor of it, of a pipe or of a socket.
func TestSucceedKeepsTheLock(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(t.TempDir(), "lock")
	r := newRig(t, rigConfig{Lock: lock})
	r.connected()
	r.do("ready")
	f, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	try := func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
	stop, tried := make(chan struct{}), make(chan int)
	go func() { // ends by stop
		for n := 0; ; n++ {
			if try() == nil {
				t.Error("a second daemon got in")
			}
			select {
			case <-stop:
				tried <- n
				return
			default:
			}
		}
	}()
	for range 3 {
		a, open := r.spawnGated("a", "0")
		r.do("spawned a")
		for fd := 3; fd < 100; fd++ {
			to, err := os.Readlink("/proc/" + itoa(a.PID) + "/fd/" + itoa(fd))
			if err == nil && (strings.Contains(to, ":") || to == lock || strings.Contains(to, "estate")) { // pipe:, socket:, anon_inode:
				t.Errorf("the command has descriptor %d: %s", fd, to)
			}
		}
		r.killKeeper()
		r.succeed()
		r.do("ready")
		open()
		r.exitOf("a")
		r.do("settled a")
	}
	close(stop)
	t.Logf("%d attempts to get the lock", <-tried)
	keeper := r.keeper
	syscall.Kill(keeper, syscall.SIGSTOP) // it starts no other supervisor
	syscall.Kill(r.sup.PID, syscall.SIGKILL)
	syscall.Kill(keeper, syscall.SIGKILL)
	awaitEnd(t, r.sup.PID)
	awaitEnd(t, keeper)
	if err := try(); err != nil {
		t.Errorf("lock after the death of both: %v", err)
	}
}

// A start that waits for the keeper's answer when that dies is cut short, not
// failed, and nothing is spawned.
func TestSucceedDuringRegister(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("ready")
	syscall.Kill(r.keeper, syscall.SIGSTOP)
	awaitState(t, r.keeper, 'T')
	r.do("later register a 1")
	r.killKeeper()
	if h := r.succeed(); len(h.Runs) != 0 {
		t.Errorf("runs %+v", h.Runs)
	}
	for _, rep := range r.later {
		if rep.Event == "later" {
			t.Errorf("the start was answered: %s", rep.Err)
		}
	}
}

// Succeed refuses while the keeper lives, and fails with what cannot be
// executed; then a start fails too.
func TestSucceedFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	if rep := r.try("succeed"); !strings.Contains(rep.Err, "cannot be succeeded") {
		t.Errorf("succeed: %q", rep.Err)
	}
	r.do("register a 1")
	r.killKeeper()
	if rep := r.try("succeed /nonexistent"); !strings.Contains(rep.Err, "no such file") {
		t.Errorf("succeed: %q", rep.Err)
	}
	if rep := r.try("register b 1"); !strings.Contains(rep.Err, "gone") {
		t.Errorf("register: %q", rep.Err)
	}
}

// TERM to the keeper, which dies over it: its successor goes on with the
// shutdown.
func TestSucceedDuringShutdown(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{Grace: 15 * time.Second})
	r.connected()
	r.do("ready")
	r.signal(syscall.SIGTERM)
	req := r.next("request").Request
	r.killKeeper()
	r.succeed()
	again := r.next("request").Request
	if d := again.Deadline.Sub(req.Deadline); again.Replace || d > time.Second || d < -3*time.Second {
		t.Errorf("request %+v, want about %+v", again, req)
	}
	keeper := r.keeper
	r.do("done")
	r.tell("exit 0")
	awaitEnd(t, keeper)
}

// A pipe that was let go of is held by nobody of ours: not by the keeper, nor
// for its successor.
func TestTrim(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("ready")
	r.do("register a 3")
	r.do("register sync 1")
	before := r.fds()
	r.do("trim a 2")
	r.do("trim none 1")
	r.do("withdraw sync")
	r.do("register sync 1") // its answer says that the keeper has read so far
	if got := r.fds(); got != before-1 {
		t.Errorf("%d descriptors, want %d", got, before-1)
	}
	r.killKeeper()
	if got := r.succeed().run(t, "a"); got.Pipes != 2 {
		t.Errorf("run %+v, want two pipes", got)
	}
}
