//go:build linux

package chaos

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

var kills = flag.Int("kills", 25, "SIGKILLs of the supervisor")

// A daemon is a keeper with its supervisor.
type daemon struct {
	*client.Client
	dir    string
	cmd    *exec.Cmd
	keeper int // the keeper now; the first is cmd
}

// startDaemon returns once it answers.
func startDaemon(t *testing.T, dir string) *daemon {
	t.Helper()
	d := &daemon{dir: dir}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(procsupd, "--socket", d.socket(), "--state", d.state(), "--ready-fd", "3")
	d.cmd.ExtraFiles, d.cmd.Stderr = []*os.File{w}, log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	d.keeper = d.cmd.Process.Pid
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "ready\n" {
		t.Fatalf("daemon said %q, %v", line, err)
	}
	d.Client = client.New(client.Config{Socket: d.socket(), State: d.state(), Patience: 20 * time.Second})
	t.Cleanup(func() { d.stop(t) })
	return d
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "s") }
func (d *daemon) state() string  { return filepath.Join(d.dir, "state") }

func (d *daemon) stop(t *testing.T) {
	d.Close()
	if d.keeper == 0 {
		return
	}
	if err := syscall.Kill(d.keeper, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if code := d.buried(d.keeper); code != 0 {
		t.Errorf("daemon: exit code %d", code)
	}
	d.keeper = 0
	if t.Failed() {
		b, _ := os.ReadFile(filepath.Join(d.dir, "log"))
		var tell []byte
		for line := range bytes.Lines(b) {
			if !bytes.Contains(line, []byte("signal=KILL")) { // what the test did
				tell = append(tell, line...)
			}
		}
		t.Logf("log of the daemon:\n%s", tell)
	}
}

// shortDir has a path that fits into a socket's address.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// work is a command with output and an exit code that are known before.
type work struct {
	n, lines, code int
	slow           bool // writes half of it, pauses and goes on
}

func (w work) request() wire.Start {
	pause := ""
	if w.slow {
		pause = fmt.Sprintf("[ $i = %d ] && sleep 0.5; ", w.lines/2)
	}
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do %secho "work-%d-line-$i"; i=$((i+1)); done; exit %d`, w.lines, pause, w.n, w.code)
	return wire.Start{Command: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Session: "chaos", Lease: "service"} // nobody takes their ends from an inbox
}

func (w work) want() []byte {
	var b bytes.Buffer
	for i := range w.lines {
		fmt.Fprintf(&b, "work-%d-line-%d\n", w.n, i)
	}
	return b.Bytes()
}

// errUnknownEnd says that a keeper that was killed was the command's parent,
// and that the kernel does not tell how it ended.
var errUnknownEnd = errors.New("its end is unknown")

// check compares what the daemon tells of an ended command with what it did.
func (w work) check(a *wire.Started, rec *handles.Record) error {
	if rec.Status == handles.Lost && strings.Contains(rec.Error, "this system does not tell") {
		return errUnknownEnd
	}
	if rec.ExitCode == nil || *rec.ExitCode != w.code {
		return fmt.Errorf("%s: status %s %q, exit code %v, want %d", a.HandleID, rec.Status, rec.Error, rec.ExitCode, w.code)
	}
	got, err := os.ReadFile(a.StdoutPath)
	if err != nil {
		return err
	}
	if want := w.want(); !bytes.Equal(got, want) {
		return fmt.Errorf("%s: %d bytes of output, want %d", a.HandleID, len(got), len(want))
	}
	return nil
}

// A7, G23, S2-18, S2-27, S4-06: the supervisor is killed at random moments
// while commands start, write and end: nothing is lost, doubled or wrong.
func TestA7_SupervisorIsKilledUnderLoad(t *testing.T) {
	d := startDaemon(t, shortDir(t))
	ctx, stop := context.WithCancel(t.Context())
	var done, never atomic.Int64
	var workers sync.WaitGroup
	ids := make(chan handles.ID, 1<<20)
	for k := range 8 {
		workers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				w := work{n: k*1_000_000 + i, lines: 1 + rand.IntN(400), code: rand.IntN(100)}
				ran, err := d.once(t.Context(), w, ids)
				if err != nil {
					t.Errorf("work %d: %v", w.n, err)
					return
				}
				if ran {
					done.Add(1)
				} else {
					never.Add(1)
				}
			}
		})
	}
	back := d.killRepeatedly(t, *kills)
	stop()
	workers.Wait()
	close(ids)
	slices.Sort(back)
	t.Logf("%d kills, %d commands, %d starts cut short; service back after: median %v, most %v", len(back), done.Load(), never.Load(), back[len(back)/2], back[len(back)-1])
	d.eachOnce(t, ids)
}

// once does one piece of work. A start whose answer was lost is asked for again
// under its key, as a careful caller does. One that was cut short before its
// command was executed says so, and then nothing has run.
func (d *daemon) once(ctx context.Context, w work, ids chan<- handles.ID) (ran bool, err error) {
	req := w.request()
	req.Idempotency = fmt.Sprintf("work-%d", w.n)
	a, err := d.Start(ctx, req)
	for errors.Is(err, handles.ErrOutcomeUnknown) {
		a, err = d.Start(ctx, req)
	}
	if err != nil {
		return false, fmt.Errorf("start: %w", err)
	}
	ids <- a.HandleID
	got, err := d.Wait(ctx, string(a.HandleID), 0)
	if err != nil {
		return false, fmt.Errorf("wait: %w", err)
	}
	if got.Record.Status != handles.Interrupted {
		return true, w.check(a, got.Record)
	}
	if out, err := os.ReadFile(a.StdoutPath); err == nil && len(out) > 0 {
		return false, fmt.Errorf("%s was interrupted before its start, and yet wrote %d bytes", a.HandleID, len(out))
	}
	return false, nil
}

// killRepeatedly kills each supervisor some time after it answered, and returns
// how long it took until the next one did.
func (d *daemon) killRepeatedly(t *testing.T, n int) (back []time.Duration) {
	t.Helper()
	for range n {
		hello, err := d.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		moment := time.NewTimer(time.Duration(rand.IntN(80)) * time.Millisecond) // the moment is what is random, nothing is waited for
		<-moment.C
		if err := syscall.Kill(hello.PID, syscall.SIGKILL); err != nil { // our grandchild: not reaped before the keeper saw it
			t.Fatal(err)
		}
		killed := time.Now()
		for {
			next, err := d.Hello(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if next.Generation > hello.Generation {
				break
			}
		}
		back = append(back, time.Since(killed))
	}
	return back
}

// eachOnce checks the journal: every run was admitted once and ended once.
func (d *daemon) eachOnce(t *testing.T, ids <-chan handles.ID) {
	t.Helper()
	want := map[handles.ID]bool{}
	for id := range ids {
		if want[id] {
			t.Errorf("%s was given twice", id)
		}
		want[id] = true
	}
	list, err := d.List(t.Context(), client.Filter{Session: "chaos"})
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range list.Handles {
		if !want[rec.HandleID] {
			t.Errorf("%s was run although nobody was told of it: %s", rec.HandleID, rec.Status)
		}
		delete(want, rec.HandleID)
		entries, err := d.Journal(t.Context(), 0, string(rec.HandleID), 0)
		if err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, e := range entries {
			count[e.Kind]++
		}
		spawned := 1
		if rec.Status == handles.Interrupted {
			spawned = 0
		}
		if count["admitted"] != 1 || count["spawned"] != spawned || count["ended"] != 1 {
			t.Errorf("%s: entries %v", rec.HandleID, count)
		}
	}
	if !list.More {
		for id := range want {
			t.Errorf("%s is not in the list", id)
		}
	}
}
