//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/supervisor/client"
)

// A supervisor that demands a newer keeper: the keeper executes its program in
// the middle of the work, and commands keep their numbers, pipes and ends.
func TestReplaceDemandsANewerKeeper(t *testing.T) {
	newer := filepath.Join(t.TempDir(), "procsupd")
	build := exec.Command("go", "build", "-ldflags", "-X procsup/supervisor/keeper.testProtocol=2", "-o", newer, "procsup/cmd/procsupd")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d := startDaemon(t, shortDir(t))
	c := newCrowd(t, d, 0)
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	ids := make(chan handles.ID, 1<<20)
	var done atomic.Int64
	for k := range 4 {
		workers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				w := work{n: k*1_000_000 + i, lines: 1 + rand.IntN(400), code: rand.IntN(100), slow: i%2 == 0}
				ran, err := d.once(t.Context(), w, ids)
				if err != nil {
					t.Errorf("work %d: %v", w.n, err)
					return
				}
				if ran {
					done.Add(1)
				}
			}
		})
	}
	before, err := d.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Replace(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	after := before
	for after.Generation <= before.Generation {
		if after, err = d.Hello(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range []int{after.PID, after.KeeperPID} {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || exe != newer {
			t.Errorf("process %d executes %s, %v", pid, exe, err)
		}
	}
	if after.KeeperPID != before.KeeperPID {
		t.Errorf("keeper %d, before %d", after.KeeperPID, before.KeeperPID)
	}
	c.checkAlive(t, d, true)
	d.killKeeper(t, after) // and it can be succeeded
	stop()
	workers.Wait()
	close(ids)
	c.end(t, d)
	d.eachOnce(t, ids)
	t.Logf("%d commands", done.Load())
}

// What a command leaves behind is ended also when its parent was a keeper that
// is dead, and the command is reaped before it is taken up again.
func TestLeftoversOfADeadKeepersCommand(t *testing.T) {
	d := startDaemon(t, shortDir(t))
	dir := t.TempDir()
	req := shell(fmt.Sprintf("cd %s; sleep 601 & echo $! >left; (setsid sleep 602 & echo $! >away); while [ ! -e end ]; do sleep .01; done; exit 6", dir))
	a, err := d.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	hello, err := d.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{}
	for _, name := range []string{"left", "away"} {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			text, _ := os.ReadFile(filepath.Join(dir, name))
			if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				pids = append(pids, pid)
				break
			}
			if time.Now().After(end) {
				t.Fatal("the command does not come up")
			}
		}
	}
	if err := unix.Kill(hello.PID, unix.SIGKILL); err != nil { // now it is the keeper's
		t.Fatal(err)
	}
	for before := hello.Generation; hello.Generation <= before; {
		if hello, err = d.Hello(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_ = unix.Kill(hello.PID, unix.SIGSTOP) // the end comes while nobody of ours looks
	if err := unix.Kill(hello.KeeperPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.buried(hello.KeeperPID)
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !waitGone(a.PID, 10*time.Second) {
		t.Fatal("the command lives")
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(a.PID, &ws, 0, nil); err != nil { // as init would
		t.Fatal(err)
	}
	_ = unix.Kill(hello.PID, unix.SIGCONT)
	d.keeper = hello.PID
	w, err := d.Wait(t.Context(), string(a.HandleID), 20*time.Second)
	if err != nil || w.Record == nil {
		t.Fatalf("%+v, %v", w, err)
	}
	if c := w.Record.ExitCode; kernelTellsEnds(t) && (c == nil || *c != 6) {
		t.Errorf("status %s %q, exit code %v, want 6", w.Record.Status, w.Record.Error, c)
	}
	if len(w.Record.Cleanup.Leftovers) != 2 || len(w.Record.Cleanup.Survivors) != 0 {
		t.Errorf("cleanup %+v, want two leftovers", w.Record.Cleanup)
	}
	for _, pid := range pids {
		if !waitGone(pid, 5*time.Second) {
			t.Errorf("%d (%s) is left", pid, commandOf(pid))
		}
	}
}

// A client that comes for the first time while the keeper's place is taken waits
// for the daemon, as one that was there before (found by TestSoak).
func TestNewClientsDuringSuccession(t *testing.T) {
	d := startDaemon(t, shortDir(t))
	ctx, stop := context.WithCancel(context.Background())
	var knocks sync.WaitGroup
	defer knocks.Wait()
	defer stop()
	for range 2 {
		knocks.Go(func() {
			for ctx.Err() == nil {
				c := client.New(client.Config{Socket: d.socket(), State: d.state(), Patience: 20 * time.Second})
				if _, err := c.Hello(context.Background()); err != nil {
					t.Errorf("hello: %v", err)
				}
				c.Close()
			}
		})
	}
	for range *keeperKills {
		hello, err := d.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond) // a supervisor that is not ready does not take its keeper's place
		d.killKeeper(t, hello)
	}
	stop()
	knocks.Wait()
}
