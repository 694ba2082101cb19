package keeper

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"procsup/pgroup"
	"procsup/platform"
)

func TestTokenVar(t *testing.T) {
	if tokenVar != pgroup.TokenVar {
		t.Errorf("token variable %q, pgroup has %q", tokenVar, pgroup.TokenVar)
	}
}

// spawnGated starts run id with a command that says hello, waits for the
// returned function and exits with code; it does not say Spawned.
func (r *rig) spawnGated(id, code string) (rep report, open func()) {
	r.t.Helper()
	path, open := gate(r.t)
	r.do("register %s 2", id)
	rep = r.do("spawn %s echo hello $PROCSUP_RUN; read x <%s; exit %s", id, path, code)
	return rep, open
}

// S4-06: the supervisor dies between any two steps of a start.
func TestDeathInStart(t *testing.T) {
	t.Parallel()
	t.Run("registered", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigConfig{})
		r.connected()
		r.do("register a 3")
		got := r.kill().run(t, "a")
		if want := (reportRun{ID: "a", Token: "outer/a", Pipes: 3}); got != want {
			t.Errorf("run %+v, want %+v", got, want)
		}
		r.do("withdraw a")
		if h := r.kill(); len(h.Runs) != 0 {
			t.Errorf("runs after Withdraw: %+v", h.Runs)
		}
	})
	for _, marks := range []string{"marked", "unmarked"} {
		t.Run("spawned, not told, "+marks, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigConfig{})
			r.connected()
			if marks == "unmarked" {
				r.do("unmarked")
			}
			a, _ := r.spawnGated("a", "3")
			b, openB := r.spawnGated("b", "4") // two at once: which is which?
			h := r.kill()
			for id, rep := range map[string]report{"a": a, "b": b} {
				want := reportRun{ID: id, Token: "outer/" + id, Pipes: 2, PID: rep.PID, Ticks: rep.Ticks}
				if got := h.run(t, id); got != want {
					t.Errorf("run %+v, want %+v", got, want)
				}
				if got := r.do("read %s 0", id).Text; got != "hello outer/"+id+"\n" {
					t.Errorf("output of %s: %q", id, got)
				}
			}
			openB()
			if e := r.next("exit").Exit; e.ID != "b" || e.Code != 4 || e.PID != b.PID {
				t.Errorf("exit %+v, want 4 of b", e)
			}
		})
	}
	t.Run("told", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, rigConfig{})
		r.connected()
		rep, open := r.spawnGated("a", "3")
		r.do("spawned a")
		for range 2 { // and the next supervisor too
			want := reportRun{ID: "a", Token: "outer/a", Pipes: 2, PID: rep.PID, Ticks: rep.Ticks}
			if got := r.kill().run(t, "a"); got != want {
				t.Errorf("run %+v, want %+v", got, want)
			}
		}
		open()
		if e := r.next("exit").Exit; e.ID != "a" || e.Code != 3 || e.Lost != "" {
			t.Errorf("exit %+v, want 3", e)
		}
	})
}

func TestWithdrawn(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("register a 1")
	r.do("withdraw a")
	if h := r.kill(); len(h.Runs) != 0 {
		t.Errorf("runs after Withdraw: %+v", h.Runs)
	}
}

// A command that drops its environment is told by its mark, without marks by
// its pipe.
func TestDeathAfterSpawnWithoutEnvironment(t *testing.T) {
	t.Parallel()
	for _, marks := range []string{"marked", "unmarked"} {
		t.Run(marks, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigConfig{})
			r.connected()
			if marks == "unmarked" {
				r.do("unmarked")
			}
			path, _ := gate(t)
			r.do("register other 1")
			r.do("register a 1")
			rep := r.do("spawn a exec env -i /bin/sh -c 'echo bare; read x <%s'", path)
			if r.do("read a 0").Text != "bare\n" {
				t.Fatal("no output")
			}
			h := r.kill()
			if got := h.run(t, "a"); got.PID != rep.PID || got.Pending {
				t.Errorf("run %+v, want pid %d", got, rep.PID)
			}
			if got := h.run(t, "other"); got.PID != 0 || got.Exit != nil || got.Pending {
				t.Errorf("run %+v, want it never spawned", got)
			}
		})
	}
}

// A command that has no pipe of ours any more is told by its token.
func TestDeathAfterSpawnWithoutPipes(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("unmarked")
	path, _ := gate(t)
	up, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	hold, _ := gate(t)
	r.do("register a 1")
	rep := r.do("spawn a exec >/dev/null 2>&1; echo up >%s; read x <%s", path, hold)
	if _, err := up.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got := r.kill().run(t, "a"); got.PID != rep.PID {
		t.Errorf("run %+v, want pid %d", got, rep.PID)
	}
}

// The child has not executed when its supervisor dies.
func TestDeathBeforeExec(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		script string
		code   int
		lost   bool
	}{
		"then it executes":             {"read x <GATE; exit 5", 5, false},
		"then it executes our program": {"self linger GATE", 6, false},
		"then it ends":                 {"", -1, true},
	} {
		for _, marks := range []string{"marked", "unmarked"} {
			t.Run(name+", "+marks, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, rigConfig{})
				r.connected()
				if marks == "unmarked" {
					r.do("unmarked")
				}
				first, execute := gate(t)
				second, open := gate(t)
				r.do("register a 1")
				r.do("register other 1")
				pid := r.do("halfway a %s %s", first, strings.ReplaceAll(tc.script, "GATE", second)).PID
				h := r.kill()
				if got := h.run(t, "a"); !got.Pending || got.PID != 0 || got.Exit != nil {
					t.Errorf("run %+v, want it pending", got)
				}
				execute()
				if !tc.lost {
					if f := r.found("a"); f.PID != pid {
						t.Errorf("found %+v, want pid %d", f, pid)
					}
				}
				open()
				e := r.exitOf("a")
				if e.Code != tc.code || (e.Lost != "") != tc.lost || !tc.lost && e.PID != pid {
					t.Errorf("exit %+v, want code %d of %d", e, tc.code, pid)
				}
				if tc.lost && marks == "unmarked" { // it may have been the other's
					r.exitOf("other")
				} else if f := r.found("other"); f.PID != 0 {
					t.Errorf("found %+v, want it never spawned", f)
				}
				r.do("settled a")
				r.do("settled other")
				if h := r.kill(); len(h.Runs) != 0 {
					t.Errorf("runs %+v", h.Runs)
				}
			})
		}
	}
}

func (r *rig) found(id string) report {
	r.t.Helper()
	return r.match(func(rep report) bool { return rep.Event == "found" && rep.Text == id }, "found "+id)
}

func (r *rig) exitOf(id string) Exit {
	r.t.Helper()
	return *r.match(func(rep report) bool { return rep.Event == "exit" && rep.Exit.ID == id }, "exit of "+id).Exit
}

// The command and a daemon that it left behind both carry its token and mark:
// the command is the older one.
func TestDeathAfterSpawnOfADaemon(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	path, _ := gate(t)
	r.do("register a 1")
	rep := r.do("spawn a (setsid sh -c 'echo daemon; read x <%s' & ); read x <%s", path, path)
	if got := r.do("read a 0").Text; got != "daemon\n" {
		t.Fatalf("output %q", got)
	}
	if got := r.kill().run(t, "a"); got.PID != rep.PID {
		t.Errorf("run %+v, want pid %d", got, rep.PID)
	}
}

// The command has ended too when the keeper looks, and nobody said Spawned.
func TestDeathAfterSpawnAndEnd(t *testing.T) {
	t.Parallel()
	for _, marks := range []string{"marked", "unmarked"} {
		t.Run(marks, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigConfig{})
			r.connected()
			if marks == "unmarked" {
				r.do("unmarked")
			}
			rep, open := r.spawnGated("a", "8")
			r.do("register b 1")
			open()
			awaitEnd(t, rep.PID)
			h := r.kill()
			a, b := h.run(t, "a"), h.run(t, "b")
			if marks == "marked" {
				if a.PID != rep.PID || a.Exit == nil || a.Exit.Code != 8 || a.Exit.Lost != "" {
					t.Errorf("run %+v exit %+v, want exit 8", a, a.Exit)
				}
				if b.PID != 0 || b.Exit != nil {
					t.Errorf("run %+v exit %+v, want it never spawned", b, b.Exit)
				}
				return
			}
			for _, r := range []reportRun{a, b} { // it was one of the two
				if r.Exit == nil || r.Exit.Lost == "" || r.PID != 0 {
					t.Errorf("run %+v exit %+v, want it lost", r, r.Exit)
				}
			}
		})
	}
}

// The supervisor dies between any two steps of an end.
func TestDeathInEnd(t *testing.T) {
	t.Parallel()
	reaped := func(r *rig, _ int) {
		r.do("register b 1") // its answer comes after the keeper has seen that a was spawned, and has its pidfd
		r.do("withdraw b")
		r.do("reap a")
	}
	for name, tc := range map[string]struct {
		steps func(r *rig, pid int)
		after func(r *rig, pid int)
		gone  bool // nothing is handed over
	}{
		"ended":          {steps: func(*rig, int) {}},
		"reaped":         {steps: reaped},
		"settled":        {steps: func(r *rig, pid int) { reaped(r, pid); r.do("settled a") }, gone: true},
		"settled first":  {steps: func(r *rig, _ int) { r.do("settled a") }, gone: true},
		"handed over":    {steps: func(*rig, int) {}, after: func(r *rig, _ int) { r.kill() }},
		"ended, adopted": {after: func(r *rig, _ int) { r.exitOf("a"); r.kill() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigConfig{})
			r.connected()
			rep, open := r.spawnGated("a", "9")
			r.do("spawned a")
			pidfd, err := platform.OpenPidfd(rep.PID)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(pidfd)
			if tc.steps != nil {
				open()
				awaitEnd(t, rep.PID)
				tc.steps(r, rep.PID)
			}
			h := r.kill()
			if tc.gone {
				if len(h.Runs) != 0 {
					t.Errorf("runs %+v after Settled", h.Runs)
				}
				awaitReaped(t, pidfd)
				return
			}
			if tc.after != nil {
				open()
				tc.after(r, rep.PID)
			}
			checkEnded(t, r, rep.PID, name != "reaped")
			r.do("settled a")
			awaitReaped(t, pidfd)
			if h := r.kill(); len(h.Runs) != 0 {
				t.Errorf("runs %+v after Settled", h.Runs)
			}
		})
	}
}

// checkEnded checks what is handed over of run a, which ended with 9. With ours
// it was the keeper's child.
func checkEnded(t *testing.T, r *rig, pid int, ours bool) {
	t.Helper()
	a := r.sup.run(t, "a")
	if a.PID != pid || a.Exit == nil || a.Exit.Code != 9 || a.Exit.Order != 1 || a.Exit.At.IsZero() {
		t.Fatalf("run %+v exit %+v, want exit 9", a, a.Exit)
	}
	if ours && a.Exit.Usage.MaxRSS == 0 {
		t.Error("no usage")
	}
	if st, err := platform.ReadStat(pid); ours && (err != nil || st.State != 'Z') {
		t.Errorf("before Settled the leader is %c (%v), want a zombie", st.State, err)
	}
	if got := r.do("read a 0").Text; got != "hello outer/a\n" {
		t.Errorf("output %q", got)
	}
}

// More runs than fit into a message, one of them with many pipes.
func TestPagedHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	var ids []string
	for i := range 150 {
		ids = append(ids, "run"+strings.Repeat("x", i%100)+string(rune('a'+i%26))+string(rune('a'+i/26)))
		r.do("register %s %d", ids[i], 1+i%16)
	}
	h := r.kill()
	if len(h.Runs) != len(ids) {
		t.Fatalf("%d runs, want %d", len(h.Runs), len(ids))
	}
	for i, got := range h.Runs {
		if got.ID != ids[i] || got.Pipes != 1+i%16 {
			t.Errorf("run %d is %+v, want %s with %d pipes", i, got, ids[i], 1+i%16)
		}
	}
}

func TestNamesAndLock(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(t.TempDir(), "lock")
	r := newRig(t, rigConfig{Lock: lock})
	h := r.connected()
	if h.Keeper != r.cmd.Process.Pid || h.Generation != 1 || h.Version != newestProtocol || h.Files != 1 {
		t.Errorf("hand-over %+v", h)
	}
	if st, err := platform.ReadStat(h.PID); err != nil || st.PGID != h.PID {
		t.Errorf("the supervisor is in group %d (%v): it gets the terminal's signals", st.PGID, err)
	}
	for pid, want := range map[int]string{h.PID: nameSupervisor, h.Keeper: nameKeeper} {
		if st, err := platform.ReadStat(pid); err != nil || st.Comm != want {
			t.Errorf("name of %d is %q (%v), want %q", pid, st.Comm, err, want)
		}
	}
	f, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("lock: %v, want it held", err)
	}
}
