//go:build linux

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// goneOver are the ways in which one supervisor follows another.
var goneOver = map[string]func(t *testing.T, d *daemon){
	"replaced": func(t *testing.T, d *daemon) {
		if err := d.Replace(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	},
	"killed": killSupervisor,
}

// A reader of output that goes on has all of it, whatever becomes of the
// supervisor: a part is never given for the whole.
func TestFollowGoesOn(t *testing.T) {
	for name, over := range goneOver {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, shortDir(t))
			dir := t.TempDir()
			if err := unix.Mkfifo(filepath.Join(dir, "go"), 0o600); err != nil {
				t.Fatal(err)
			}
			req := shell("seq 1 50; read x <go; seq 51 100")
			req.Dir = dir
			a := d.must(t, req)
			if w, err := d.WaitOutput(t.Context(), string(a.HandleID), wire.WaitOutput{Pattern: "50\n"}); err != nil || w.Status != wire.Matched {
				t.Fatalf("%+v, %v", w, err)
			}
			const readers = 4
			got := make(chan string, readers)
			for range readers {
				c := client.New(client.Config{Socket: d.socket(), State: d.state(), Patience: 20 * time.Second})
				defer c.Close()
				var out bytes.Buffer
				first := make(chan struct{})
				go func() { // ends with the command
					err := c.Output(context.WithoutCancel(t.Context()), string(a.HandleID), wire.OutputQuery{Source: "stdout", Follow: true}, &firstWrite{w: &out, first: first}, nil, nil)
					if err != nil {
						fmt.Fprintf(&out, "error: %v", err)
					}
					got <- out.String()
				}()
				<-first
			}
			over(t, d)
			release(t, dir)
			var want bytes.Buffer
			for n := range 100 {
				fmt.Fprintln(&want, n+1)
			}
			for range readers {
				if out := <-got; out != want.String() {
					t.Errorf("a reader has %d bytes of %d, the last of them %q", len(out), want.Len(), out[max(0, len(out)-40):])
				}
			}
		})
	}
}

// firstWrite tells when something was written.
type firstWrite struct {
	w     *bytes.Buffer
	first chan struct{}
}

func (f *firstWrite) Write(p []byte) (int, error) {
	if f.first != nil && len(p) > 0 {
		close(f.first)
		f.first = nil
	}
	return f.w.Write(p)
}

// A no-output timeout counts from the last byte, or the start, over the supervisors.
func TestNoOutputCountsOver(t *testing.T) {
	for name, over := range goneOver {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, shortDir(t))
			var ids []handles.ID
			for _, script := range []string{"echo a; exec sleep 600", "exec sleep 600"} {
				req := shell(script)
				req.NoOutputMS = 6000
				ids = append(ids, d.must(t, req).HandleID)
			}
			began := time.Now()
			for time.Since(began) < 4*time.Second { // beginning anew each time, it would not be over before 10 s
				over(t, d)
				time.Sleep(200 * time.Millisecond) // the load of a daemon that goes over all the time
			}
			for _, id := range ids {
				w, err := d.Wait(t.Context(), string(id), 20*time.Second)
				if err != nil || w.Record.Cause != handles.CauseNoOutput {
					t.Fatalf("%+v, %v", w, err)
				}
				if ms := w.Record.DurationMS; ms < 5900 || ms > 9000 {
					t.Errorf("%s: over after %d ms, want 6000", id, ms)
				}
			}
		})
	}
}

// A check by exec: ends with the supervisor that runs it, whatever that dies of.
func TestCheckEndsWithItsSupervisor(t *testing.T) {
	d := startDaemon(t, shortDir(t))
	fifo := filepath.Join(t.TempDir(), "pids")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pids, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pids.Close()
	req := shell("exec sleep 600")
	req.Ready = []string{"exec:echo $$ >" + fifo + "; exec sleep 284"}
	d.must(t, req)
	var pid int
	if _, err := fmt.Fscan(pids, &pid); err != nil {
		t.Fatal(err)
	}
	killSupervisor(t, d)
	if !platform.AwaitGone(pid, 5*time.Second) {
		t.Errorf("the check %d lives on", pid)
	}
}

// Whose pipes died with keeper and supervisor is not ended for being quiet: nobody
// would hear it.
func TestNoOutputIsNotGuessed(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir)
	req := shell("exec sleep 600")
	req.NoOutputMS = 700
	a := d.must(t, req)
	d.killBoth(t)
	d = startDaemon(t, dir)
	w, err := d.Wait(t.Context(), string(a.HandleID), 2*time.Second)
	if err != nil || w.Status != wire.WaitTimeout || w.Record.Status != handles.Running {
		t.Errorf("%+v, %v", w, err)
	}
}
