package supervisor

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// long bounds a wait for what must come.
const long = 30 * time.Second

func with(req wire.Start, conds ...string) wire.Start {
	req.Ready = conds
	return req
}

func waitReady(t *testing.T, s *Supervisor, id handles.ID) *wire.ReadyWaited {
	t.Helper()
	w, err := s.WaitReady(t.Context(), string(id), "", long)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustBeReady(t *testing.T, s *Supervisor, id handles.ID) *handles.Record {
	t.Helper()
	w := waitReady(t, s, id)
	if w.Status != wire.Ready || w.Record.ReadyAt.IsZero() || w.Record.Readiness.State != handles.ReadyNow {
		t.Fatalf("%s: ready_at %v, %+v, error %q", w.Status, w.Record.ReadyAt, w.Record.Readiness, w.Record.Error)
	}
	return w.Record
}

// entryKinds are the entries of a run.
func entryKinds(t *testing.T, s *Supervisor, id handles.ID) string {
	t.Helper()
	es, err := s.Journal(t.Context(), 0, string(id), 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		out = append(out, e.Kind)
	}
	return strings.Join(out, " ")
}

// G15: a line that came before anybody waited counts.
func TestG15_ReadyByOutput(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, with(sh("printf '\\033[32mlistening\\033[0m on 80'; exec sleep 600"), "output:listening on"))
	rec := mustBeReady(t, s, a.HandleID)
	if c := rec.Readiness.Conditions[0]; c.HeldAt.IsZero() || c.Text != "listening on" {
		t.Errorf("condition %+v", c)
	}
	if got := entryKinds(t, s, a.HandleID); got != "admitted spawned ready" {
		t.Errorf("journal: %s", got)
	}
	if rec := mustBeReady(t, s, a.HandleID); rec.ReadyAt.Before(rec.StartedAt) {
		t.Errorf("ready at %v, started at %v", rec.ReadyAt, rec.StartedAt)
	}
}

// A23: waiting for something that has died ends at once, with its exit status.
func TestA23_EndedBeforeReady(t *testing.T) {
	s := open(t, Config{})
	for _, tc := range [][2]string{{"output:never", "exec >&- 2>&-; sleep 0.05; exit 7"}, {"fd:3", "exec 3>&-; sleep 0.05; exit 7"}} { // it is over before it has ended
		a := mustStart(t, s, with(sh(tc[1]), tc[0]))
		if w := waitReady(t, s, a.HandleID); w.Record.Status != handles.Failed || w.Record.Cause != "" || *w.Record.ExitCode != 7 {
			t.Errorf("%s: %+v", tc[0], w.Record)
		}
	}
	for _, cond := range []string{"output:never", "notify", "fd:3", "tcp:127.0.0.1:1", "unix:/nowhere/sock", "http://127.0.0.1:1/", "file:/nowhere/file", "exec:false"} {
		began := time.Now()
		a := mustStart(t, s, with(sh("echo booting; exit 7"), cond))
		w := waitReady(t, s, a.HandleID)
		if w.Status != wire.Exited || w.Record.Status != handles.Failed || *w.Record.ExitCode != 7 || w.Record.Cause != "" || !w.Record.ReadyAt.IsZero() {
			t.Errorf("%s: %s, %+v", cond, w.Status, w.Record)
		}
		if d := time.Since(began); d > long/2 {
			t.Errorf("%s: told after %v", cond, d)
		}
	}
}

// Each kind holds when it should, and all have to.
func TestReadyConditions(t *testing.T) {
	s := open(t, Config{})
	dir := t.TempDir()
	sock := filepath.Join(dir, "sock")
	for name, tc := range map[string]struct {
		script string
		conds  []string
		open   func(t *testing.T)
	}{
		"fd":             {script: "echo 42 >&7; exec sleep 600", conds: []string{"fd:7"}},
		"fd in pieces":   {script: "printf 4 >&7; printf 2 >&7; echo >&7; exec sleep 600", conds: []string{"fd:7"}},
		"file":           {script: "mkdir -p sub/deep; : >sub/deep/up; exec sleep 600", conds: []string{"file:sub/deep/up"}},
		"file by rename": {script: ": >tmp; mv tmp here; exec sleep 600", conds: []string{"file:here"}},
		"exec":           {script: ": >flag; exec sleep 600", conds: []string{"exec:test -f flag"}},
		"all":            {script: "echo one; echo 42 >&7; exec sleep 600", conds: []string{"output:one", "fd:7", "exec:true"}},
		"tcp":            {script: "exec sleep 600", conds: []string{"tcp:127.0.0.1:0"}, open: nil},
		"unix": {script: "exec sleep 600", conds: []string{"unix:" + sock}, open: func(t *testing.T) {
			listenNotify(t, "unix", sock)
		}},
		"abstract": {script: "exec sleep 600", conds: []string{"unix:@procsup-test-" + filepath.Base(dir)}, open: func(t *testing.T) {
			listenNotify(t, "unix", "@procsup-test-"+filepath.Base(dir))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "tcp" {
				l := listenNotify(t, "tcp", "127.0.0.1:0")
				tc.conds = []string{"tcp:" + l.Addr().String()}
			}
			req := with(sh(tc.script), tc.conds...)
			req.Dir = t.TempDir()
			a := mustStart(t, s, req)
			if tc.open != nil {
				if w, err := s.WaitReady(t.Context(), string(a.HandleID), "", -1); err != nil || w.Status != wire.TimedOut {
					t.Fatalf("before: %+v, %v", w, err)
				}
				tc.open(t)
			}
			rec := mustBeReady(t, s, a.HandleID)
			for _, c := range rec.Readiness.Conditions {
				if c.HeldAt.IsZero() {
					t.Errorf("ready, and %s has not held", c.Condition)
				}
				if strings.HasPrefix(c.Condition, "fd:") && c.Text != "42" {
					t.Errorf("the line is %q", c.Text)
				}
			}
		})
	}
}

func listenNotify(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// HTTP is ready by its status, and not before.
func TestReadyByHTTP(t *testing.T) {
	s := open(t, Config{})
	l := listenNotify(t, "tcp", "127.0.0.1:0")
	asked := make(chan bool, 1)
	status := make(chan int, 1)
	status <- 503
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		code := <-status
		w.WriteHeader(code)
		if code == 503 {
			asked <- true
			code = 204
		}
		status <- code
	})}
	go func() { _ = srv.Serve(l) }() // ends with the test
	t.Cleanup(func() { srv.Close() })
	a := mustStart(t, s, with(sh("exec sleep 600"), "http://"+l.Addr().String()+"/health=204"))
	<-asked
	mustBeReady(t, s, a.HandleID)
}

// A start that is not ready in time is ended: stop kind start_abort, cause
// start_aborted; the record names what failed, why, and has the last output.
func TestStartAborted(t *testing.T) {
	s := open(t, Config{})
	ms, enough := int64(150), int64(3000)
	for cond, why := range map[string]string{
		"output:never": "it was not written", "notify": "READY=1 did not come", "fd:3": "no line came",
		"tcp:127.0.0.1:1": "connection refused", "unix:/nowhere/s": "no such file", "http://127.0.0.1:1/": "connection refused",
		"file:/nowhere/f": "no such file", "exec:echo not yet >&2; exit 3": "exit 3: not yet",
	} {
		req := with(sh("echo starting; echo trouble >&2; exec sleep 600"), "output:starting", cond)
		if req.ReadyMS = &ms; strings.HasPrefix(cond, "exec:") {
			req.ReadyMS = &enough // for the shell to run at all on a busy machine
		}
		a := mustStart(t, s, req)
		w := waitReady(t, s, a.HandleID)
		rec := w.Record
		if w.Status != wire.Exited || rec.Status != handles.Killed || rec.Cause != handles.CauseAborted || rec.Readiness.State != handles.ReadyAborted || !rec.ReadyAt.IsZero() {
			t.Errorf("%s: %s %+v", cond, w.Status, rec)
		}
		c := rec.Readiness.Conditions[1]
		if !strings.Contains(c.Why, why) || !strings.Contains(rec.Error, cond) || !strings.Contains(rec.Error, c.Why) || strings.Contains(rec.Error, "output:starting") {
			t.Errorf("%s: why %q, error %q", cond, c.Why, rec.Error)
		}
		if o := rec.Readiness.LastOutput; o == nil || o.Stdout != "starting\n" || o.Stderr != "trouble\n" {
			t.Errorf("%s: last output %+v", cond, o)
		}
		if rows := stops(t, s, a.HandleID); len(rows) != 1 {
			t.Errorf("%s: stops %v", cond, rows)
		}
	}
}

// One that was ready in time is left alone when that time is over.
func TestReadyOnceIsNotAborted(t *testing.T) {
	s := open(t, Config{})
	ms := int64(700)
	req := with(sh("echo up; exec sleep 600"), "output:up")
	req.ReadyMS = &ms
	a := mustStart(t, s, req)
	rec := mustBeReady(t, s, a.HandleID)
	w, err := s.Wait(t.Context(), string(a.HandleID), "", time.Until(rec.Readiness.Until)+100*time.Millisecond)
	if err != nil || w.Status != wire.WaitTimeout {
		t.Errorf("%+v, %v", w.Record, err)
	}
}

// What can never hold ends the start at once.
func TestStartDoomed(t *testing.T) {
	s := open(t, Config{})
	for _, tc := range []struct{ script, cond, why string }{
		{"exec 3>&-; exec sleep 600", "fd:3", "closed without a line"},
		{"exec >&- 2>&-; exec sleep 600", "output:x", "ended without it"},
	} {
		a := mustStart(t, s, with(sh(tc.script), tc.cond))
		w := waitReady(t, s, a.HandleID)
		if w.Status != wire.Exited || w.Record.Cause != handles.CauseAborted || !strings.Contains(w.Record.Error, tc.why) {
			t.Errorf("%s: %s, %s, error %q", tc.cond, w.Status, w.Record.Cause, w.Record.Error)
		}
	}
}

// Bad conditions are refused before anything happens.
func TestReadyBadInput(t *testing.T) {
	s := open(t, Config{})
	minus, zero := int64(-1), int64(0)
	for name, req := range map[string]wire.Start{
		"kind":     with(sh("true"), "nonsense:x"),
		"twice":    with(sh("true"), "notify", "notify"),
		"stdout":   with(sh("true"), "fd:1"),
		"negative": {Command: []string{"true"}, Ready: []string{"notify"}, ReadyMS: &minus},
		"no cond":  {Command: []string{"true"}, ReadyMS: &zero},
		"watchdog": {Command: []string{"true"}, Ready: []string{"fd:3"}, WatchdogMS: 5},
	} {
		if _, err := s.Start(t.Context(), req); !errors.Is(err, handles.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := s.List(t.Context(), journal.Filter{}); err != nil || len(list.Handles) > 0 {
		t.Errorf("there is %v, %v", list, err)
	}
	a := mustStart(t, s, sh("sleep 600"))
	if _, err := s.WaitReady(t.Context(), string(a.HandleID), "", 0); !errors.Is(err, handles.ErrConflict) {
		t.Errorf("without a condition: %v", err)
	}
}

// The caller's going away ends the wait and nothing else; so does a timeout.
func TestWaitReadyEndsNothing(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, with(sh("sleep 600"), "output:never"))
	if w, err := s.WaitReady(t.Context(), string(a.HandleID), "", time.Millisecond); err != nil || w.Status != wire.TimedOut || w.Record.Status != handles.Running {
		t.Errorf("%+v, %v", w, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.WaitReady(ctx, string(a.HandleID), "", 0); err == nil {
		t.Error("a wait of a caller that left has an answer")
	}
	if rec, err := s.Show(t.Context(), string(a.HandleID), ""); err != nil || rec.Status != handles.Running {
		t.Errorf("%+v, %v", rec, err)
	}
}

// A probe that is running when the wait ends is ended with its group.
func TestExecProbeEndsWithTheRun(t *testing.T) {
	s := open(t, Config{Exclusive: true})
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	if err := unix.Mkfifo(pids, 0o600); err != nil {
		t.Fatal(err)
	}
	req := with(sh("read line; exit 0"), "exec:sleep 1000 & echo $! >pids; sleep 1000")
	req.Dir, req.Stdin = dir, "pipe"
	a := mustStart(t, s, req)
	b, err := os.ReadFile(pids) // it runs
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Send(t.Context(), string(a.HandleID), "", []byte("x\n"), true); err != nil {
		t.Fatal(err)
	}
	if w := waitReady(t, s, a.HandleID); w.Status != wire.Exited {
		t.Errorf("%+v", w)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if !platform.AwaitGone(pid, long) {
		t.Errorf("%d lives", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
