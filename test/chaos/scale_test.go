//go:build linux

package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

var scale = flag.Int("handles", 200, "live `handles` of TestScale; 0 = min(10000, (hard NOFILE-500)/3), as many as a daemon can have")

// handlesHere is how many the machine has room for.
func handlesHere(t *testing.T) int {
	t.Helper()
	if *scale > 0 {
		return *scale
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return min(10000, (int(limit.Max)-500)/3)
}

// each calls f for 0 to n-1 from some clients at once.
func (d *daemon) each(t *testing.T, n int, f func(ctx context.Context, c *client.Client, i int) error) {
	t.Helper()
	var next atomic.Int64
	var clients sync.WaitGroup
	for range 6 {
		clients.Go(func() {
			c := client.New(client.Config{Socket: d.socket(), State: d.state(), Patience: time.Minute})
			defer c.Close()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(t.Context(), c, i); err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
			}
		})
	}
	clients.Wait()
}

// status reads a line of /proc/PID/status.
func status(pid int, name string) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}

// performance.md 6 and 7: thousands of live handles, all taken up again with
// their numbers after their supervisor was killed, then all ended.
func TestScale(t *testing.T) {
	n := handlesHere(t)
	d := startDaemonOf(t, procsupd, shortDir(t), "--session-limit", "100000")
	ids, pids := make([]handles.ID, n), make([]int, n)
	lap := stopwatch(t)
	d.each(t, n, func(ctx context.Context, c *client.Client, i int) error {
		a, err := c.Start(ctx, wire.Start{Command: []string{"/bin/sleep", "608"}, Env: []string{"PATH=/bin"}, Session: "chaos", Containment: "tree", Lease: "service"})
		if err != nil {
			return err
		}
		ids[i], pids[i] = a.HandleID, a.PID
		return nil
	})
	if t.Failed() {
		t.FailNow()
	}
	lap("started")
	hello, err := d.Hello(t.Context())
	if err != nil || hello.Live != n {
		t.Fatalf("%+v, %v", hello, err)
	}
	t.Logf("supervisor %d KiB, %d threads; keeper %d KiB", status(hello.PID, "VmRSS"), status(hello.PID, "Threads"), status(d.cmd.Process.Pid, "RssAnon"))
	d.allRun(t, ids, pids)
	lap("listed")
	for round := range 2 { // the second has nothing but adopted ones
		_ = syscall.Kill(hello.PID, syscall.SIGKILL)
		hello = d.nextGeneration(t, hello.Generation)
		lap(fmt.Sprint("back after kill ", round+1))
		if hello.Live != n {
			t.Errorf("%d live, want %d", hello.Live, n)
		}
		d.allRun(t, ids, pids)
		lap("listed")
	}
	d.each(t, n, func(ctx context.Context, c *client.Client, i int) error {
		_, err := c.Cancel(ctx, string(ids[i]), wire.Cancel{NoWait: true})
		return err
	})
	lap("cancel asked")
	d.each(t, n, func(ctx context.Context, c *client.Client, i int) error {
		w, err := c.Wait(ctx, string(ids[i]), 0)
		if err == nil && (w.Record.Status != handles.Killed || w.Record.Signal != "TERM" || alive(pids[i])) {
			err = fmt.Errorf("%+v", w.Record)
		}
		return err
	})
	lap("all ended")
	if h, err := d.Hello(t.Context()); err != nil || h.Live != 0 {
		t.Errorf("%+v, %v", h, err)
	}
	d.worksAgain(t)
}

// stopwatch logs how long each step took.
func stopwatch(t *testing.T) func(what string) {
	last := time.Now()
	return func(what string) {
		t.Helper()
		t.Logf("%-20s %v", what, time.Since(last).Round(time.Millisecond))
		last = time.Now()
	}
}

// allRun checks that the list has every handle, with its number.
func (d *daemon) allRun(t *testing.T, ids []handles.ID, pids []int) {
	t.Helper()
	list, err := d.List(t.Context(), client.Filter{Live: true})
	if err != nil {
		t.Fatal(err)
	}
	got := map[handles.ID]int{}
	for _, rec := range list.Handles {
		if rec.Status == handles.Running {
			got[rec.HandleID] = rec.PID
		}
	}
	lost := 0
	for i, id := range ids {
		if got[id] != pids[i] {
			lost++
		}
	}
	if lost > 0 || len(list.Handles) != len(ids) {
		t.Errorf("%d of %d are not as they were, %d are listed", lost, len(ids), len(list.Handles))
	}
}
