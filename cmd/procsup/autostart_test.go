//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// keeper is the number of the daemon's first process.
func (b *bench) keeper() int {
	b.t.Helper()
	c := b.client()
	defer c.Close()
	h, err := c.Hello(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return h.KeeperPID
}

// A daemon that a verb starts has nothing of the verb: x=$(procsup start …)
// returns at once, whatever else was open is let go of, and the daemon is part
// of no session, directory, run or terminal.
func TestAutostartInheritsNothing(t *testing.T) {
	b := newBench(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := b.command("start", "--", "sleep", "100")
	cmd.Env = append(cmd.Env, "PROCSUP_SESSION=mine", "PROCSUP_RUN=outer/inner")
	cmd.ExtraFiles = []*os.File{w, w, w} // 3 is the daemon's own
	out, err := cmd.Output()             // returns when nobody holds its pipe any more
	w.Close()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eof(t, r)
	for _, pid := range b.processes() {
		proc := "/proc/" + strconv.Itoa(pid)
		if dir, err := os.Readlink(proc + "/cwd"); err != nil || dir != "/" {
			t.Errorf("process %d: directory %s, %v", pid, dir, err)
		}
		env, err := os.ReadFile(proc + "/environ")
		if err != nil || strings.Contains(string(env), "PROCSUP_") {
			t.Errorf("process %d: environment %q, %v", pid, env, err)
		}
		for fd, want := range map[string]string{"0": "/dev/null", "1": "/dev/null"} {
			if got, err := os.Readlink(proc + "/fd/" + fd); err != nil || got != want {
				t.Errorf("process %d: descriptor %s is %s, %v", pid, fd, got, err)
			}
		}
	}
	keeper := b.keeper()
	if sid, err := unix.Getsid(keeper); err != nil || sid != keeper {
		t.Errorf("the keeper %d is in session %d, %v", keeper, sid, err)
	}
	if got := b.show(strings.TrimSpace(string(out))).SessionID; got != "mine" {
		t.Errorf("the command is in session %q", got)
	}
}

// processes are those that run procsupd with our state directory.
func (b *bench) processes() (pids []int) {
	b.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		argv := strings.Split(string(text), "\x00")
		if err != nil || filepath.Base(argv[0]) != daemonName && !strings.Contains(argv[0], "exe") || !strings.Contains(string(text), b.state) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		pids = append(pids, pid)
	}
	if len(pids) < 2 {
		b.t.Fatalf("found only %v of the daemon", pids)
	}
	return pids
}

// Verbs that race to start the daemon all work, with one daemon.
func TestAutostartRaceLeavesOneDaemon(t *testing.T) {
	b := newBench(t)
	const n = 6
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if r := b.run("start", "--", "true"); r.code != 0 {
				t.Errorf("exit %d: %s", r.code, r.err)
			}
		})
	}
	all.Wait()
	if got := strings.Count(b.want(0, "list", "--all"), "\n"); got != n {
		t.Errorf("%d handles in the one daemon, want %d", got, n)
	}
	if pids := b.processes(); len(pids) != 2 { // keeper and supervisor
		t.Errorf("processes of the daemon: %v", pids)
	}
}

// Where no daemon can be started the verb says why and exits 69.
func TestAutostartFails(t *testing.T) {
	b := newBench(t)
	alone := t.TempDir()
	data, err := os.ReadFile(filepath.Join(b.bin, "procsup"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(alone, "procsup"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(alone, "procsup"), "list")
	cmd.Env = append(b.env, "PATH=/usr/bin:/bin")
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != exitNoDaemon || !strings.Contains(string(out), daemonName) {
		t.Errorf("without procsupd: exit %d, %s", code, out)
	}
	file := filepath.Join(alone, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := b.run("list", "--state", file); r.code != exitNoDaemon || !strings.Contains(r.err, file) {
		t.Errorf("with a file for a state directory: exit %d, %s", r.code, r.err)
	}
	if r := b.run("list", "--socket", "/"+strings.Repeat("x", 200)); r.code != exitProcsup || !strings.Contains(r.err, "too long") {
		t.Errorf("with a long path: exit %d, %s", r.code, r.err)
	}
}

// A daemon that is started inside a run outlives it, with what it runs.
func TestADaemonStartedInARunOutlivesIt(t *testing.T) {
	b := newBench(t)
	r := b.run("run", "--", "procsup", "start", "--", "sleep", "100")
	if r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	h := strings.TrimSpace(r.out)
	if rec := b.show(h); rec.Liveness != "live" {
		t.Errorf("the handle is %s by %s: %s", rec.Status, rec.Cause, r.err)
	}
	cgroup, err := os.ReadFile("/proc/" + strconv.Itoa(b.keeper()) + "/cgroup")
	if err != nil || strings.Contains(string(cgroup), "/procsup-") {
		t.Errorf("the keeper is in the cgroup of a run: %s, %v", cgroup, err)
	}
}
