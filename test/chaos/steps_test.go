//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// buildFaulty makes a procsupd that kills itself where a test asks it to: the
// source as it is, with hooks laid over it, so that the product has no such path.
var buildFaulty = sync.OnceValues(func() (string, error) {
	const with = "Retention: v.o.keepRecords,"
	serve, err := os.ReadFile(filepath.Join(daemonSource, "serve.go"))
	if err == nil && strings.Count(string(serve), with) != 1 {
		err = errors.New("serve.go has changed: where are the hooks to go?")
	}
	dir := filepath.Dir(procsupd)
	changed, list, path := filepath.Join(dir, "serve.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "procsupd-faults")
	if err == nil {
		err = os.WriteFile(changed, []byte(strings.Replace(string(serve), with, with+" Hooks: faults(),", 1)), 0o600)
	}
	over, _ := json.Marshal(map[string]any{"Replace": map[string]string{ // strings cannot fail
		filepath.Join(daemonSource, "serve.go"):  changed,
		filepath.Join(daemonSource, "faults.go"): filepath.Join(testSource, "testdata", "faults.go.txt"),
	}})
	if err = errors.Join(err, os.WriteFile(list, over, 0o600)); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-overlay", list, "-o", path, "procsup/cmd/procsupd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// Where the sources are; tests begin in their own folder.
var (
	testSource, _ = filepath.Abs(".")
	daemonSource  = filepath.Join(testSource, "..", "..", "cmd", "procsupd")
)

// A trap is a daemon that dies at a step once that is armed.
type trap struct {
	*daemon
	exe, faults string
	runs        string // a command writes its number here when it runs
}

func newTrap(t *testing.T) *trap {
	t.Helper()
	exe, err := buildFaulty()
	if err != nil {
		t.Fatal(err)
	}
	tr := &trap{exe: exe, faults: t.TempDir(), runs: filepath.Join(t.TempDir(), "runs")}
	t.Setenv("PROCSUP_FAULTS", tr.faults)
	tr.daemon = startDaemonOf(t, exe, shortDir(t))
	return tr
}

func (tr *trap) arm(t *testing.T, point, who string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(tr.faults, "new"), []byte(who), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(tr.faults, "new"), filepath.Join(tr.faults, point)); err != nil {
		t.Fatal(err)
	}
}

// sprung reports whether the armed point was reached.
func (tr *trap) sprung(point string) bool {
	_, err := os.Lstat(filepath.Join(tr.faults, point))
	return errors.Is(err, os.ErrNotExist)
}

// again starts a daemon after keeper and supervisor have died.
func (tr *trap) again(t *testing.T, supervisor int) {
	t.Helper()
	if !waitFor(20*time.Second, func() bool { return !alive(supervisor) }) {
		t.Fatal("the supervisor lives")
	}
	_ = syscall.Kill(tr.keeper, syscall.SIGKILL)
	tr.buried(tr.keeper)
	tr.keeper = 0
	if !waitGone(supervisor, 5*time.Second) {
		t.Fatal("the supervisor lives")
	}
	tr.daemon.Close()
	tr.daemon = startDaemonOf(t, tr.exe, tr.dir)
}

// pids are those of the commands that were executed.
func (tr *trap) pids() (pids []int) {
	b, _ := os.ReadFile(tr.runs)
	for _, f := range strings.Fields(string(b)) {
		pid, _ := strconv.Atoi(f)
		pids = append(pids, pid)
	}
	return pids
}

// request is a start of a script that says first that it runs.
func (tr *trap) request(script string) wire.Start {
	return wire.Start{
		Command: []string{"/bin/sh", "-c", "echo $$ >>" + tr.runs + "; " + script},
		Env:     []string{"PATH=/usr/bin:/bin"}, Session: "chaos", Idempotency: "the one",
	}
}

// insist starts as a careful caller does: again under the same key while the
// answer is lost.
func insist(ctx context.Context, c *client.Client, req wire.Start) (*wire.Started, error) {
	for {
		a, err := c.Start(ctx, req)
		if !errors.Is(err, handles.ErrOutcomeUnknown) && !errors.Is(err, client.ErrNoDaemon) {
			return a, err
		}
	}
}

const (
	stepLines = 400
	stepCode  = 7
)

var stepScript = fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo line-$i; i=$((i+1)); done; exit %d`, stepLines, stepCode)

func stepOutput() string {
	var b strings.Builder
	for i := range stepLines {
		fmt.Fprintf(&b, "line-%d\n", i)
	}
	return b.String()
}

// What may be true after a death.
const (
	whole   = "whole"   // it ran once, and its end and all its bytes are known
	never   = "never"   // interrupted: it never ran
	unknown = "unknown" // lost; what was written is a beginning of what it writes
)

// steps are the points between two steps of a start and of an end, and what may
// be true after the supervisor died there, or both.
var steps = []struct {
	point       string
	alone, both []string
}{
	{"submitted", []string{whole, never}, []string{whole, unknown}},
	{"admitted", []string{never}, []string{unknown}},
	{"piped", []string{never}, []string{unknown}},
	{"registered", []string{never}, []string{unknown}},
	{"prepared", []string{never}, []string{unknown}},
	{"spawned", []string{whole}, []string{unknown}},
	{"told", []string{whole}, []string{unknown}},
	{"recorded", []string{whole}, []string{whole, unknown}}, // it may have come to its end meanwhile
	{"observe", []string{whole}, []string{unknown}},
	{"observed", []string{whole}, []string{unknown}},
	{"swept", []string{whole}, []string{unknown}},
	{"settle", []string{whole}, []string{unknown}},
	{"ended", []string{whole}, []string{whole}},
	{"reaped", []string{whole}, []string{whole}},
	{"settled", []string{whole}, []string{whole}},
}

// A7, G23, S2-18, S4-06: the supervisor, or keeper and supervisor, die between
// any two steps of a start and of an end. The record is true, nothing runs
// twice, and the journal is in order.
func TestA7_DeathBetweenSteps(t *testing.T) {
	for _, step := range steps {
		for _, who := range []string{"supervisor", "both"} {
			t.Run(step.point+"/"+who, func(t *testing.T) {
				may := step.alone
				if who == "both" {
					may = step.both
				}
				dieAt(t, step.point, who, may)
			})
		}
	}
}

func dieAt(t *testing.T, point, who string, may []string) {
	tr := newTrap(t)
	hello, err := tr.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tr.arm(t, point, who)
	c := client.New(client.Config{Socket: tr.socket(), State: tr.state(), Patience: 20 * time.Second})
	defer c.Close()
	type result struct {
		a   *wire.Started
		w   *wire.Waited
		err error
	}
	got := make(chan result, 1)
	go func() { // ends with the run
		var r result
		if r.a, r.err = insist(t.Context(), c, tr.request(stepScript)); r.err == nil {
			r.w, r.err = c.Wait(t.Context(), string(r.a.HandleID), 0)
		}
		got <- r
	}()
	if who == "both" {
		tr.again(t, hello.PID)
	}
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	if !waitFor(5*time.Second, func() bool { return tr.sprung(point) }) {
		t.Fatalf("%s was never reached", point)
	}
	if who != "both" {
		tr.nextGeneration(t, hello.Generation)
	}
	rec, err := tr.Show(t.Context(), string(r.a.HandleID))
	if err != nil {
		t.Fatal(err)
	}
	if rec.Revision != r.w.Record.Revision {
		t.Errorf("the record changed after its end was told: %+v, then %+v", r.w.Record, rec)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Output(ctx, string(r.a.HandleID), wire.OutputQuery{Follow: true}, io.Discard, nil, nil); err != nil {
		t.Errorf("its output, to the end: %v", err) // of what was never started that is nothing
	}
	tr.judge(t, r.a, rec, may)
	tr.orderly(t)
}

// nextGeneration waits until the successor answers.
func (d *daemon) nextGeneration(t *testing.T, before int) *wire.Hello {
	t.Helper()
	var h *wire.Hello
	ok := waitFor(20*time.Second, func() (ok bool) {
		var err error
		h, err = d.Hello(t.Context())
		return err == nil && h.Generation > before
	})
	if !ok {
		t.Fatalf("no successor: %+v", h)
	}
	return h
}

// judge compares the record with what may be true.
func (tr *trap) judge(t *testing.T, a *wire.Started, rec *handles.Record, may []string) {
	t.Helper()
	out, err := os.ReadFile(a.StdoutPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	ran := len(tr.pids())
	is := "none of these"
	switch {
	case rec.ExitCode != nil && *rec.ExitCode == stepCode && rec.Status == handles.Failed && string(out) == stepOutput() && ran == 1:
		is = whole
	case rec.Status == handles.Interrupted && len(out) == 0 && ran == 0 && rec.PID == 0:
		is = never
	case rec.Status == handles.Lost && rec.Error != "" && strings.HasPrefix(stepOutput(), string(out)) && ran <= 1:
		is = unknown
	}
	if !slices.Contains(may, is) {
		t.Errorf("%s, want %v: it ran %d times, %d bytes, %+v", is, may, ran, len(out), rec)
	}
}

// orderly checks what is true of every daemon with nothing running: records do
// not contradict themselves or their rows, and nothing is held or left.
func (d *daemon) orderly(t *testing.T) {
	t.Helper()
	rep, err := d.CheckJournal(t.Context())
	if err != nil || len(rep.Damage)+len(rep.Unfit)+len(rep.Dirty) > 0 {
		t.Errorf("journal check: %+v, %v", rep, err)
	}
	list, err := d.List(t.Context(), client.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range list.Handles {
		d.consistent(t, &rec)
	}
	if h, err := d.Hello(t.Context()); err != nil || h.Live != 0 {
		t.Errorf("hello %+v, %v", h, err)
	}
}

func (d *daemon) consistent(t *testing.T, rec *handles.Record) {
	t.Helper()
	bad := func(what string) { t.Helper(); t.Errorf("%s: %s: %+v", rec.HandleID, what, rec) }
	entries, err := d.Journal(t.Context(), 0, string(rec.HandleID), 0)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range entries {
		count[e.Kind]++
	}
	if count["admitted"] != 1 || count["spawned"] > 1 || count["ended"] != 1 || count["stop"] > 1 {
		bad(fmt.Sprint("entries ", count))
	}
	known := rec.ExitCode != nil || rec.Signal != ""
	switch rec.Status {
	case handles.Completed, handles.Failed, handles.Killed:
		if !known && rec.SpawnError == nil {
			bad("an ending that is not told")
		}
	case handles.Lost, handles.Interrupted, handles.Cancelled:
		if known {
			bad("an ending that nobody saw")
		}
	default:
		bad("it has not ended")
	}
	if rec.Liveness != "exited" || rec.EndedAt.Before(rec.StartedAt) {
		bad("its end")
	}
	if (rec.PID != 0) != (rec.ExecIdentity != nil) || rec.PID != rec.GroupID || rec.PID != 0 && count["spawned"] != 1 {
		bad("its process")
	}
	if (rec.Stop != nil) != (count["stop"] == 1) || rec.Status == handles.Killed && rec.Stop == nil {
		bad("its stop")
	}
	if rec.PID != 0 && alive(rec.PID) {
		bad("its process lives")
	}
	if o := rec.Output; o != nil {
		if st, err := os.Stat(o.Stdout.Path); err == nil && st.Size() != o.Stdout.Bytes || err != nil && o.Stdout.Bytes != 0 {
			bad(fmt.Sprint("its bytes: ", st, err))
		}
	}
}

// waitFor asks again and again, for what nothing tells of.
func waitFor(within time.Duration, ok func() bool) bool {
	for end := time.Now().Add(within); ; time.Sleep(2 * time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
