//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// gated is a command that does what script says once the file go is opened for
// writing, and tells by the file done that it has.
func gated(t *testing.T, script string, conds ...string) (req wire.Start, open func()) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go", "done"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	req = shell("read x <go; " + script + "; echo >done; exec sleep 600")
	req.Dir, req.Ready = dir, conds
	req.Env = append(req.Env, "SELF="+os.Args[0], "GORACE=atexit_sleep_ms=0")
	return req, func() {
		release(t, dir)
		done, err := os.OpenFile(filepath.Join(dir, "done"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer done.Close()
		_ = done.SetReadDeadline(time.Now().Add(20 * time.Second)) // the command may have died
		if _, err := done.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// release opens the file go of a gated command.
func release(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What makes a run ready while no supervisor looks is not lost: it waits in the
// kernel, held by the keeper, or is there to be looked at.
func TestReadyWhileTheSupervisorIsDead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	for name, tc := range map[string]struct {
		script string
		conds  []string
	}{
		"notify":            {`"$SELF" say STATUS=here READY=1`, []string{"notify"}},
		"fd":                {"printf 4 >&5; echo 2 >&5", []string{"fd:5"}},
		"output":            {"echo one two", []string{"output:one two"}},
		"file":              {": >up", []string{"file:up"}},
		"exec":              {": >up", []string{"exec:test -f up"}},
		"all":               {`"$SELF" say READY=1; echo out; echo 42 >&9; : >up; echo 42 >&3`, []string{"fd:9", "notify", "output:out", "file:up", "fd:3"}},
		"tcp":               {"true", []string{"tcp:" + addr}},
		"keeper":            {`"$SELF" say READY=1; echo 42 >&9`, []string{"fd:9", "notify"}}, // which was killed before
		"closed":            {`"$SELF" say READY=1; echo 42 >&9`, []string{"fd:9", "notify"}}, // its stdin was
		"closed and keeper": {`"$SELF" say READY=1; echo 42 >&9`, []string{"fd:9", "notify"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, shortDir(t))
			req, open := gated(t, tc.script, tc.conds...)
			req.Stdin = "pipe" // its place among what the keeper holds
			a, err := d.Start(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			hello, err := d.Hello(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "closed") {
				if _, err := d.Send(t.Context(), string(a.HandleID), nil, true); err != nil {
					t.Fatal(err)
				}
			}
			if strings.HasSuffix(name, "keeper") {
				d.killKeeper(t, hello)
				if hello, err = d.Hello(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			_ = unix.Kill(hello.PID, unix.SIGSTOP)
			open()
			if name == "tcp" {
				l, err := net.Listen("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			}
			_ = unix.Kill(hello.PID, unix.SIGKILL)
			w, err := d.WaitReady(t.Context(), string(a.HandleID), 20*time.Second)
			if err != nil || w.Status != wire.Ready || w.Record.ReadyAt.IsZero() {
				t.Fatalf("%+v, %v", w, err)
			}
			if after, err := d.Hello(t.Context()); err != nil || after.Generation <= hello.Generation {
				t.Errorf("generation %+v, %v", after, err)
			}
			for _, c := range w.Record.Readiness.Conditions {
				if c.Condition[:2] == "fd" && c.Text != "42" {
					t.Errorf("%s: line %q", c.Condition, c.Text)
				}
			}
			if v := w.Record.Readiness; name == "notify" && v.Status != "here" {
				t.Errorf("status %q", v.Status)
			}
		})
	}
}

// The level is in the journal: the next supervisor knows it, and goes on to hear
// of it; the time to become ready goes on too.
func TestReadySurvivesTheSupervisor(t *testing.T) {
	d := startDaemon(t, shortDir(t))
	req, open := gated(t, `"$SELF" say READY=1 barrier; read x <go; "$SELF" say RELOADING=1 barrier`, "notify")
	a, err := d.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	late, err := d.Start(t.Context(), wire.Start{Command: []string{"/bin/sleep", "600"}, Env: []string{}, Ready: []string{"file:/nowhere/at/all"}, ReadyMS: ptr(1500), Session: "faults"})
	if err != nil {
		t.Fatal(err)
	}
	release(t, req.Dir)
	w, err := d.WaitReady(t.Context(), string(a.HandleID), 20*time.Second)
	if err != nil || w.Status != wire.Ready {
		t.Fatalf("%+v, %v", w, err)
	}
	killSupervisor(t, d)
	again, err := d.WaitReady(t.Context(), string(a.HandleID), -1)
	if err != nil || again.Status != wire.Ready || !again.Record.ReadyAt.Equal(w.Record.ReadyAt) {
		t.Errorf("%+v, %v, want %v", again, err, w.Record.ReadyAt)
	}
	open()
	for limit := time.Now().Add(20 * time.Second); ; { // the barrier was passed: it is known
		rec, err := d.Show(t.Context(), string(a.HandleID))
		if err != nil || time.Now().After(limit) {
			t.Fatalf("%+v, %v", rec, err)
		}
		if rec.Readiness.State == handles.ReadyReloading && rec.ReadyAt.IsZero() {
			break
		}
	}
	e, err := d.Wait(t.Context(), string(late.HandleID), 20*time.Second)
	if err != nil || e.Record.Cause != handles.CauseAborted || e.Record.DurationMS < 1400 {
		t.Errorf("the late one: %+v, %v", e.Record, err)
	}
}

func ptr(n int64) *int64 { return &n }

func killSupervisor(t *testing.T, d *daemon) {
	t.Helper()
	hello, err := d.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(hello.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for {
		next, err := d.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if next.Generation > hello.Generation {
			return
		}
	}
}

// Killed at random moments of a start, each run becomes ready once, or was never
// started and says so.
func TestReadyUnderRandomKills(t *testing.T) {
	d := startDaemon(t, shortDir(t))
	for i := range *rounds {
		type answer struct {
			id  handles.ID
			err error
		}
		answers := make(chan answer)
		go func() { // ends with the answer
			req := shell(`echo 42 >&3; "$SELF" say STATUS=up READY=1; echo out; : >"$UP"; exec sleep 600`)
			req.Env = append(req.Env, "SELF="+os.Args[0], "GORACE=atexit_sleep_ms=0", "UP="+filepath.Join(d.dir, fmt.Sprint("up", i)))
			req.Ready = []string{"fd:3", "notify", "output:out", "file:" + filepath.Join(d.dir, fmt.Sprint("up", i))}
			req.Idempotency, req.Lease = fmt.Sprint("ready", i), "service"
			a, err := d.Start(t.Context(), req)
			for errors.Is(err, handles.ErrOutcomeUnknown) {
				a, err = d.Start(t.Context(), req)
			}
			if err != nil {
				answers <- answer{err: err}
				return
			}
			answers <- answer{id: a.HandleID}
		}()
		moment := time.NewTimer(time.Duration(rand.IntN(30)) * time.Millisecond) // the moment is what is random, nothing is waited for
		<-moment.C
		killSupervisor(t, d)
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		w, err := d.WaitReady(t.Context(), string(a.id), 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if w.Status != wire.Ready && w.Record.Status != handles.Interrupted && w.Record.Status != handles.Lost {
			t.Errorf("round %d: %s %+v %+v", i, w.Status, w.Record, w.Record.Readiness)
		}
		entries, err := d.Journal(t.Context(), 0, string(a.id), 0)
		if err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, e := range entries {
			count[e.Kind]++
		}
		if count["ready"] > 1 || w.Status == wire.Ready && count["ready"] != 1 {
			t.Errorf("round %d: entries %v", i, count)
		}
	}
}
