package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// program is this test as a program that speaks another protocol alone. first
// is what it does before.
func program(t *testing.T, protocol int, first string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "program")
	script := fmt.Sprintf("#!/bin/sh\n%s\nexport %s=%d\nexec %s \"$@\"\n", first, protocolEnv, protocol, exe)
	if err := os.WriteFile(name, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// A supervisor that needs a newer protocol: the keeper executes its program, and
// has what it had, its number too.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(t.TempDir(), "lock")
	r := newRig(t, rigConfig{Lock: lock, Retry: time.Hour})
	first := r.connected()
	r.do("ready")
	adopted, openAdopted := r.spawnGated("adopted", "3")
	r.do("spawned adopted")
	ended, openEnded := r.spawnGated("ended", "4")
	r.do("spawned ended")
	openEnded()
	awaitEnd(t, ended.PID)
	r.kill()
	r.do("ready")
	own, openOwn := r.spawnGated("own", "5")
	r.do("spawned own")
	r.do("register never 2")
	program := program(t, 2, "")
	r.do("replace %s", program)
	r.tell("exit 0")
	h := r.connected()
	if h.Version != 2 || h.Keeper != first.Keeper || h.Generation != 4 || h.Files != 1 {
		t.Errorf("hand-over %+v", h)
	}
	for id, pid := range map[string]int{"adopted": adopted.PID, "own": own.PID, "ended": ended.PID} {
		if got := h.run(t, id); got.PID != pid || got.Pipes != 2 || got.Pidfd || (got.Exit != nil) != (id == "ended") {
			t.Errorf("run %+v exit %+v", got, got.Exit)
		}
		if got := r.do("read %s 0", id).Text; got != "hello outer/"+id+"\n" {
			t.Errorf("output of %s: %q", id, got)
		}
	}
	if e := h.run(t, "ended").Exit; e.Code != 4 || e.Order != 1 || e.Lost != "" {
		t.Errorf("exit %+v, want 4", e)
	}
	if got := h.run(t, "never"); got.PID != 0 || got.Exit != nil || got.Pipes != 2 {
		t.Errorf("run %+v exit %+v", got, got.Exit)
	}
	openOwn()
	if e := r.exitOf("own"); e.Code != 5 || e.Order != 2 || e.Lost != "" {
		t.Errorf("exit %+v, want 5", e)
	}
	openAdopted()
	if e := r.exitOf("adopted"); e.Code != 3 || e.Order != 3 || e.Lost != "" {
		t.Errorf("exit %+v, want 3", e)
	}
	checkLocked(t, lock)
	r.do("ready")
	r.do("replace %s", older(t)) // which cannot speak with the new keeper
	r.tell("exit 0")
	r.logged("going back")
	if h := r.connected(); h.Version != 2 || len(h.Runs) != 4 {
		t.Errorf("hand-over %+v", h)
	}
}

func older(t *testing.T) string { return program(t, 1, "") }

func checkLocked(t *testing.T, lock string) {
	t.Helper()
	f, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("lock: %v, want it held", err)
	}
}

// The keeper cannot execute the new program, or does not know demands: the
// program before it goes on.
func TestUpgradeFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		noHeir bool
		first  string
	}{
		"program vanishes": {first: "rm -f \"$0\""},
		"an older keeper":  {noHeir: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigConfig{NoHeir: tc.noHeir, Retry: time.Hour})
			r.connected()
			r.do("ready")
			a, open := r.spawnGated("a", "3")
			r.do("spawned a")
			r.do("register sync 0") // its answer says that the keeper has a's pidfd
			r.do("withdraw sync")
			before := r.fdList()
			r.do("replace %s", program(t, 2, tc.first))
			r.tell("exit 0")
			r.logged("going back")
			if h := r.connected(); h.Version != 1 || h.run(t, "a").PID != a.PID {
				t.Errorf("hand-over %+v", h)
			}
			if after := r.fdList(); len(after) != len(before) {
				t.Errorf("descriptors %v, before %v", after, before)
			}
			open()
			if e := r.exitOf("a"); e.Code != 3 {
				t.Errorf("exit %+v", e)
			}
			if got := inheritable(r.keeper); len(got) > 0 {
				t.Errorf("a child would inherit %v", got)
			}
		})
	}
}

// inheritable lists what of ours a child of a process would inherit.
func inheritable(pid int) (out []string) {
	for fd := 3; fd < 200; fd++ {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		if err != nil || to == os.DevNull {
			continue
		}
		info, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))
		var pos, flags int
		fmt.Sscanf(string(info), "pos:\t%d\nflags:\t%o", &pos, &flags)
		if flags&unix.O_CLOEXEC == 0 {
			out = append(out, fmt.Sprint(fd, " ", to))
		}
	}
	return out
}

// An upgrade, and then the new keeper is killed.
func TestUpgradeThenSucceed(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("ready")
	a, open := r.spawnGated("a", "3")
	r.do("spawned a")
	r.do("replace %s", program(t, 2, ""))
	r.tell("exit 0")
	r.connected()
	r.do("ready")
	r.killKeeper()
	if got := r.succeed().run(t, "a"); got.PID != a.PID || got.Exit != nil || got.Pipes != 2 {
		t.Errorf("run %+v", got)
	}
	open()
	checkAway(t, r.exitOf("a"), 3, a.PID)
	if got := inheritable(r.keeper); len(got) > 0 {
		t.Errorf("a child would inherit %v", got)
	}
}
