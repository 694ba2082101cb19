//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/supervisor/client"
)

// loadUntil has clients do known work until stop is called. done is how much they
// have done.
func (d *daemon) loadUntil(t *testing.T, ids chan<- handles.ID) (done *atomic.Int64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done = &atomic.Int64{}
	var workers sync.WaitGroup
	for k := range 4 {
		workers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := d.once(t.Context(), work{n: k*1_000_000 + i, lines: 1 + i%300, code: i % 100}, ids); err != nil {
					t.Errorf("work %d/%d: %v", k, i, err)
					return
				}
				done.Add(1)
			}
		})
	}
	return done, func() { cancel(); workers.Wait() }
}

// Supervisor or keeper are stopped for a while under load, and go on: nothing is
// lost or doubled, and nobody takes a stopped supervisor for a dead one.
func TestStoppedUnderLoad(t *testing.T) {
	for _, who := range []string{"supervisor", "keeper", "both"} {
		t.Run(who, func(t *testing.T) {
			d := startDaemon(t, shortDir(t))
			hello, err := d.Hello(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pids := map[string][]int{"supervisor": {hello.PID}, "keeper": {d.cmd.Process.Pid}, "both": {hello.PID, d.cmd.Process.Pid}}[who]
			ids := make(chan handles.ID, 1<<20)
			done, stop := d.loadUntil(t, ids)
			for round := range int64(2) {
				if !waitFor(20*time.Second, func() bool { return done.Load() >= 20*(round+1) }) {
					t.Fatal("no load")
				}
				for _, pid := range pids {
					_ = unix.Kill(pid, unix.SIGSTOP)
				}
				pause := time.NewTimer(time.Second) // how long it stands still is what is tested
				<-pause.C
				for _, pid := range pids {
					_ = unix.Kill(pid, unix.SIGCONT)
				}
				if _, err := d.Hello(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			t.Logf("%d commands", done.Load())
			close(ids)
			d.eachOnce(t, ids)
			if after, err := d.Hello(t.Context()); err != nil || after.Generation != hello.Generation {
				t.Errorf("%+v, %v", after, err)
			}
		})
	}
}

// A10: of five daemons that are started at one moment one is left, the others end
// with one clear line, and the winner's socket stays. It also starts on what a
// killed one has left.
func TestA10_FiveAtOnce(t *testing.T) {
	dir := shortDir(t)
	startDaemon(t, dir).killBoth(t) // leaves socket and lock file
	var all [5]*exec.Cmd
	var said [5]strings.Builder
	for i := range all {
		all[i] = exec.Command(procsupd, "--socket", filepath.Join(dir, "s"), "--state", filepath.Join(dir, "state"))
		all[i].Stderr = &said[i]
		if err := all[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan int, len(all))
	for i, c := range all {
		go func() { _ = c.Wait(); ended <- i }() // ends with the daemon
	}
	lost := map[int]bool{}
	for range 4 {
		select {
		case i := <-ended:
			lost[i] = true
			if code := all[i].ProcessState.ExitCode(); code != 73 || strings.Count(said[i].String(), "\n") != 1 || !strings.Contains(said[i].String(), "another daemon uses "+filepath.Join(dir, "state")) {
				t.Errorf("a loser: code %d, %s", code, said[i].String())
			}
		case <-time.After(20 * time.Second):
			t.Fatal("more than one is left")
		}
	}
	c := client.New(client.Config{Socket: filepath.Join(dir, "s"), State: filepath.Join(dir, "state"), Patience: 10 * time.Second})
	defer c.Close()
	hello, err := c.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if !lost[i] {
			if hello.KeeperPID != all[i].Process.Pid {
				t.Errorf("%d answers, %d is left", hello.KeeperPID, all[i].Process.Pid)
			}
			_ = all[i].Process.Signal(syscall.SIGTERM)
		}
	}
	<-ended
}

// a8 runs in a pid namespace of its own, where numbers can be chosen.
const a8 = `
export PROCSUP_SOCKET=$T/s PROCSUP_STATE=$T/state
daemon() { $PROCSUPD 2>>$T/log & K=$!; until S=$($PROCSUP daemon --status 2>/dev/null); do sleep .02; done; S=${S#supervisor }; S=${S%%,*}; }
daemon
H=$($PROCSUP start -- sleep 616); V=$($PROCSUP show --json $H | sed 's/.*"pid":\([0-9]*\).*/\1/')
kill -STOP $K; kill -KILL $S $K $V; wait $K 2>/dev/null
n=0; while kill -0 $V 2>/dev/null && [ $n -lt 200 ]; do sleep .02; n=$((n+1)); done
echo $((V-1)) >/proc/sys/kernel/ns_last_pid; sleep 617 &
test $! = $V || { echo "fixture: no reuse: $! is not $V"; exit 0; }
daemon
$PROCSUP cancel $H; $PROCSUP show --json $H | sed 's/.*"status":"\([a-z]*\)".*/status \1/'
kill -0 $V && echo stranger alive
kill $V; kill -TERM $K; wait $K
`

// A8: the number of a command that ended while nobody looked has been given to a
// stranger: the run is lost, and the stranger gets no signal.
func TestA8_NumberOfAStranger(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a pid namespace needs root")
	}
	dir := shortDir(t)
	// The first process reaps what is orphaned, as an init does.
	cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", a8)
	cmd.Env = append(os.Environ(), "T="+dir, "PROCSUP="+procsup, "PROCSUPD="+procsupd, "PATH="+filepath.Dir(procsupd)+":"+os.Getenv("PATH"))
	over := time.AfterFunc(40*time.Second, func() { _ = cmd.Process.Kill() })
	defer over.Stop()
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "unshare:") || strings.Contains(string(out), "fixture:") {
		t.Skipf("%s", out)
	}
	if err != nil || !strings.Contains(string(out), "status lost") || !strings.Contains(string(out), "stranger alive") {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Errorf("%v\n%s\n%s", err, out, log)
	}
}

// The chaos of writing commands as a user without rights, without cgroups: level
// tree. (65534 is the overflow uid, which a daemon refuses to serve.)
func TestA7_AsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	const uid = 65533
	dir := shortDir(t)
	if err := errors.Join(os.Chown(dir, uid, uid), os.Chmod(filepath.Dir(procsupd), 0o755)); err != nil {
		t.Fatal(err)
	}
	d := startDaemonAs(t, dir, uid)
	a := d.must(t, shell("exec sleep 612"))
	if rec, err := d.Show(t.Context(), string(a.HandleID)); err != nil || rec.Containment != "tree" {
		t.Errorf("%+v, %v", rec, err)
	}
	if st, err := os.Stat(fmt.Sprintf("/proc/%d", a.PID)); err != nil || st.Sys().(*syscall.Stat_t).Uid != uid {
		t.Errorf("%+v, %v", st, err)
	}
	ids := make(chan handles.ID, 1<<20)
	done, stop := d.loadUntil(t, ids)
	back := d.killRepeatedly(t, max(*kills/2, 5))
	stop()
	t.Logf("%d commands, %d kills", done.Load(), len(back))
	close(ids)
	d.eachOnce(t, ids)
	if rec, err := d.Show(t.Context(), string(a.HandleID)); err != nil || rec.Status != handles.Running || rec.PID != a.PID {
		t.Errorf("%+v, %v", rec, err)
	}
}
