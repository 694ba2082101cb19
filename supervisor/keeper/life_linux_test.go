package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// crash makes supervisors die before they are ready until the keeper gives up.
func (r *rig) crash(deaths int) {
	r.t.Helper()
	for i := range deaths {
		r.tell("exit 7")
		if i < deaths-1 {
			r.connected()
		}
	}
	r.logged("supervisors die before they are ready")
}

func TestCrashLoopAndPoke(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(t.TempDir(), "lock")
	r := newRig(t, rigConfig{Retry: time.Hour, Lock: lock})
	r.connected()
	r.do("ready")
	r.logged("first ready")
	a, openA := r.spawnGated("a", "3")
	r.do("spawned a")
	r.kill() // it was ready: not counted
	r.crash(maxDeaths)
	openA() // ends while there is no supervisor
	awaitEnd(t, a.PID)
	f, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("lock in the crash loop: %v, want it held", err)
	}
	if kids := platform.Children(r.cmd.Process.Pid); len(kids) != 1 || kids[0] != a.PID {
		t.Errorf("children %v in the crash loop, want only the ended command %d", kids, a.PID)
	}
	pidFile := func(text string) string {
		if err := os.WriteFile(lock, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return lock
	}
	if err := Poke(pidFile(fmt.Sprintf("%d\n", r.cmd.Process.Pid))); err != nil {
		t.Fatal(err)
	}
	h := r.connected()
	if h.Generation != 2+maxDeaths {
		t.Errorf("generation %d, want %d", h.Generation, 2+maxDeaths)
	}
	if got := h.run(t, "a"); got.PID != a.PID || got.Pipes != 2 || got.Exit == nil || got.Exit.Code != 3 {
		t.Errorf("run %+v exit %+v after the crash loop", got, got.Exit)
	}
	r.tell("exit 7") // still no better: it waits again
	r.logged("supervisors die before they are ready")
	if err := Poke(pidFile(strconv.Itoa(r.cmd.Process.Pid))); err != nil {
		t.Fatal(err)
	}
	r.connected()
	r.do("ready")
	r.tell("exit 7") // this one was ready: at once
	r.connected()
	for _, text := range []string{"", "x", "1", strconv.Itoa(os.Getpid()), strconv.Itoa(a.PID)} {
		if err := Poke(pidFile(text)); err == nil {
			t.Errorf("Poke with %q: no error", text)
		}
	}
	if err := Poke(lock + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Poke of no file: %v", err)
	}
}

func TestCrashLoopRetries(t *testing.T) {
	t.Parallel()
	const retry = 300 * time.Millisecond
	r := newRig(t, rigConfig{Retry: retry})
	r.connected()
	r.crash(maxDeaths)
	began := time.Now()
	r.connected()
	if d := time.Since(began); d < retry/2 {
		t.Errorf("tried again after %v, want %v", d, retry)
	}
}

func TestSupervisorCannotStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{Exe: "/nonexistent/procsupd", Retry: time.Hour, Grace: time.Hour})
	r.logged("start supervisor")
	r.logged("supervisors die before they are ready")
	r.signal(syscall.SIGTERM)
	if code := r.code(); code != 1 {
		t.Errorf("code %d, want 1", code)
	}
}

// copySelf copies the test binary.
func copySelf(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(name, b, 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestReplace(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{Retry: time.Hour})
	r.connected()
	old := r.do("exe").Text
	r.do("ready")
	a, open := r.spawnGated("a", "4")
	r.do("spawned a")
	other := copySelf(t)
	r.do("replace %s", other)
	r.tell("exit 0")
	h := r.connected()
	if got := r.do("exe").Text; got != other {
		t.Errorf("the supervisor executes %s, want %s", got, other)
	}
	if got := h.run(t, "a"); got.PID != a.PID || got.Exit != nil {
		t.Errorf("run %+v", got)
	}
	r.logged("supervisor replaced")
	open()
	if e := r.exitOf("a"); e.Code != 4 {
		t.Errorf("exit %+v, want 4", e)
	}
	r.do("ready")
	r.kill()
	if got := r.do("exe").Text; got != other {
		t.Errorf("after a death the supervisor executes %s, want %s", got, other)
	}
	r.do("ready")

	for _, bad := range []string{"/nonexistent", "/bin/false"} { // as a broken upgrade
		r.do("replace %s", bad)
		r.tell("exit 0")
		r.logged("going back")
		r.connected()
		if got := r.do("exe").Text; got != other {
			t.Errorf("after %s the supervisor executes %s, want %s", bad, got, other)
		}
		r.do("ready")
	}
	if old == other {
		t.Error("the copy is no other program")
	}
}

// SIGUSR2 to the keeper asks the supervisor to make place.
func TestReplaceBySignal(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.signal(syscall.SIGUSR2)
	if req := r.next("request").Request; !req.Replace {
		t.Errorf("request %+v, want Replace", req)
	}
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	const grace = 10 * time.Second
	for name, sig := range map[string]syscall.Signal{"TERM": unix.SIGTERM, "INT": unix.SIGINT, "HUP": unix.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigConfig{Grace: grace})
			r.connected()
			r.signal(sig)
			req := r.next("request").Request
			if left := time.Until(req.Deadline); req.Replace || left > grace || left < grace/2 {
				t.Errorf("request %+v, %v left", req, left)
			}
			r.kill() // dies over it: the next one is asked too, before it is ready
			if again := r.next("request").Request; again.Deadline.Sub(req.Deadline).Abs() > time.Second {
				t.Errorf("deadline %v, want about %v", again.Deadline, req.Deadline)
			}
			r.tell("exit 0") // not done: so is this one's successor
			r.connected()
			r.next("request")
			r.do("done")
			r.tell("exit 0")
			if code := r.code(); code != 0 {
				t.Errorf("keeper's code %d, want 0", code)
			}
		})
	}
}

// Done without the agreed code, or that without done, is a death.
func TestDoneAndCode(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("ready")
	r.tell("exit 0")
	r.connected()
	r.do("ready")
	r.do("done")
	r.tell("exit 3")
	r.connected()
	r.do("done")
	r.tell("exit 0")
	if code := r.code(); code != 0 {
		t.Errorf("keeper's code %d, want 0", code)
	}
}

// A supervisor that overruns the shutdown is killed, and so are the commands.
func TestShutdownOverrun(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{Grace: 300 * time.Millisecond})
	r.connected()
	r.do("ready")
	rep, _ := r.spawnGated("a", "3")
	r.do("spawned a")
	r.signal(syscall.SIGTERM)
	if code := r.code(); code != 1 {
		t.Errorf("keeper's code %d, want 1", code)
	}
	awaitEnd(t, rep.PID)
}

// TERM while no supervisor gets ready ends within the deadline.
func TestShutdownInCrashLoop(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{Retry: time.Hour, Grace: time.Hour})
	r.connected()
	rep, _ := r.spawnGated("a", "3")
	r.do("spawned a")
	r.crash(maxDeaths)
	r.signal(syscall.SIGTERM)
	h := r.connected() // one more chance to end things in order
	r.next("request")
	if got := h.run(t, "a"); got.PID != rep.PID {
		t.Errorf("run %+v", got)
	}
	r.tell("exit 7")
	if code := r.code(); code != 1 {
		t.Errorf("keeper's code %d, want 1", code)
	}
	awaitEnd(t, rep.PID)
}

// A supervisor that closes its socket is of no use; it may end by itself.
func TestClosedSocket(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	h := r.connected()
	r.do("ready")
	r.do("close")
	r.next("gone")
	if got := r.connected(); got.Generation != h.Generation+1 {
		t.Errorf("generation %d, want %d", got.Generation, h.Generation+1)
	}
}
