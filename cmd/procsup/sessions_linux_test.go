package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// batch is what continue prints.
func (b *bench) batch(args ...string) (w wire.Batch) {
	b.t.Helper()
	if out := b.want(0, append([]string{"continue", "-S", "s"}, args...)...); json.Unmarshal([]byte(out), &w) != nil {
		b.t.Fatalf("continue: %s", out)
	}
	return w
}

// gone waits until a process does not live any more.
func gone(t testing.TB, pid int, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); lives(pid); {
		if time.Now().After(end) {
			t.Errorf("process %d lives after %v", pid, within)
			return
		}
		time.Sleep(5 * time.Millisecond) // nobody tells the end of a process that is not ours
	}
}

func lives(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[0]
	return state != "Z" && state != "X"
}

// S2-01, S1-04, S1-35, G20: start, go on, get each result once, by one route.
func TestS2_01_ResultsOnce(t *testing.T) {
	b := newBench(t)
	one, two := b.start("-S", "s", "--", "sh", "-c", "echo hi"), b.start("-S", "s", "--", "false")
	b.want(0, "idle", "-S", "s", "--wait")
	if out := b.want(0, "pending", "-S", "s"); out != "2" {
		t.Errorf("pending: %s", out)
	}
	w := b.batch()
	if w.Count != 2 || w.Completions[0].HandleID != handles.ID(min(one, two)) || w.Completions[1].HandleID != handles.ID(max(one, two)) {
		t.Errorf("continue: %+v", w)
	}
	if w := b.batch(); w.Event != wire.NothingKey || w.Count != 0 {
		t.Errorf("again: %+v", w)
	}
	if out := b.want(0, "deliveries", "-S", "s", "--json"); !strings.Contains(out, one) || !strings.Contains(out, w.Batch) {
		t.Errorf("deliveries: %s", out)
	}
	b.want(0, "idle", "-S", "s", "--expect", one+","+two)
	for range 3 { // wait takes it
		b.want(1, "wait", b.start("-S", "s", "--", "false"))
	}
	if w := b.batch(); w.Count != 0 {
		t.Errorf("after wait: %+v", w)
	}
	b.want(4, "start", "-S", "s", "--background-after", "20s", "--", "sh", "-c", "exit 4")
	if w := b.batch(); w.Count != 0 {
		t.Errorf("after a start that ended in front: %+v", w)
	}
}

// S1-35, D8: the batch is acknowledged once it was written: a reader that dies
// before gets nothing away from the next one, and several at once share.
func TestS1_35_ReadersOfTheInbox(t *testing.T) {
	b := newBench(t)
	h := b.start("-S", "s", "--", "true")
	b.want(0, "idle", "-S", "s", "--wait")
	cmd := b.command("continue", "-S", "s")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd.Stdout = full
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitProcsup {
		t.Errorf("to a full disk: %v", err)
	}
	if w := b.batch(); w.Count != 1 || string(w.Completions[0].HandleID) != h || !w.Redelivered {
		t.Errorf("the next one: %+v", w)
	}
	var want, got []string
	for range 6 {
		want = append(want, b.start("-S", "s", "--", "true"))
	}
	b.want(0, "idle", "-S", "s", "--wait")
	var all sync.WaitGroup
	outs := make([]string, 3)
	for i := range outs {
		all.Go(func() { outs[i] = b.run("continue", "-S", "s").out })
	}
	all.Wait()
	for _, out := range outs {
		var w wire.Batch
		if err := json.Unmarshal([]byte(out), &w); err != nil {
			t.Fatal(err, out)
		}
		for _, c := range w.Completions {
			got = append(got, string(c.HandleID))
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// S1-36: a continuation carries no text and no input; it is refused before
// anything is taken.
func TestS1_36_ContinueCarriesNothing(t *testing.T) {
	b := newBench(t)
	b.start("-S", "s", "--", "true")
	b.want(0, "idle", "-S", "s", "--wait")
	for _, args := range [][]string{{"--input", "x"}, {"some text"}, {"--", "cat"}, {"--exec", ""}, {"--exec", "cat", "text"}} {
		r := b.run(append([]string{"continue", "-S", "s"}, args...)...)
		if r.code != exitUsage || r.out != "" || !strings.Contains(r.err, "config_error") {
			t.Errorf("continue %q: exit %d, %s%s", args, r.code, r.out, r.err)
		}
	}
	b.want(exitUsage, "continue", "-S", "s", "--deadline", "1s")
	if w := b.batch(); w.Count != 1 || w.Redelivered {
		t.Errorf("the inbox is not untouched: %+v", w)
	}
}

// S1-37: --exec hands the batch to a command, which accepts it by exit 0; else
// it is pending again.
func TestS1_37_ContinueExec(t *testing.T) {
	b := newBench(t)
	b.start("-S", "s", "--", "true")
	b.start("-S", "s", "--", "true")
	b.want(0, "idle", "-S", "s", "--wait")
	pending := func(want string) {
		t.Helper()
		if out := b.want(0, "pending", "-S", "s"); out != want {
			t.Errorf("pending %s, want %s", out, want)
		}
	}
	if r := b.run("continue", "-S", "s", "--exec", "cat >/dev/null; exit 3"); r.code != 3 {
		t.Errorf("exit %d, %s", r.code, r.err)
	}
	pending("2")
	b.want(exitDeadline, "continue", "-S", "s", "--exec", "exec sleep 100", "--deadline", "100ms")
	pending("2")
	b.want(0, "scope", "open", "g", "-S", "s")
	b.want(0, "scope", "cancel", "g", "-S", "s")
	b.want(exitRefused, "continue", "-S", "s", "--exec", "cat", "--scope", "g")
	pending("2")
	out := b.want(0, "continue", "-S", "s", "--max-items", "1", "--exec", `cat; echo $PROCSUP_SESSION`)
	line, session, _ := strings.Cut(out, "\n")
	var w wire.Batch
	if err := json.Unmarshal([]byte(line), &w); err != nil || w.Count != 1 || !w.Completions[0].Redelivered || session != "s" {
		t.Errorf("%s: %v", out, err)
	}
	pending("1")
	b.want(0, "continue", "-S", "s", "--exec", "exit 0") // stdin is not read
	pending("0")
	if w := b.batch("--exec", "echo ran"); w.Event != wire.NothingKey {
		t.Errorf("nothing there: %+v", w)
	}
}

// S1-39, S1-41: idle says what runs and what is missing, and by its exit code.
func TestS1_39_Idle(t *testing.T) {
	b := newBench(t)
	h := b.start("-S", "s", "--stdin", "pipe", "--", "cat")
	b.want(exitTimedOut, "idle", "-S", "s")
	b.want(exitTimedOut, "idle", "-S", "s", "--wait", "--timeout", "50ms")
	b.want(0, "send", h, "--close")
	b.want(0, "idle", "-S", "s", "--wait")
	var i wire.Idle
	r := b.run("idle", "-S", "s", "--json", "--wait", "--expect", h)
	if json.Unmarshal([]byte(r.out), &i) != nil || r.code != exitRefused || !i.Idle || !slices.Equal(i.Missing, []handles.ID{handles.ID(h)}) {
		t.Errorf("exit %d, %s", r.code, r.out)
	}
	if !strings.Contains(r.err, h) {
		t.Errorf("it is not named: %s", r.err)
	}
	b.batch()
	b.want(0, "idle", "-S", "s", "--wait", "--expect", h)
}

// S1-24, S1-28, S1-30, G21: notify says subscribed, tells an end with its own
// error, announces it, and ends after closed.
func TestS1_30_NotifyEndsWithTheSession(t *testing.T) {
	b := newBench(t)
	b.want(0, "session", "open", "s")
	cmd := b.command("notify", "-S", "s")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	until := func(kind string) (n wire.Notice) {
		t.Helper()
		for lines.Scan() {
			if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
			if n.Kind == kind {
				return n
			}
			n = wire.Notice{}
		}
		t.Fatalf("no %s", kind)
		return n
	}
	until(wire.NoticeSubscribed)
	b.want(exitNotFound, "start", "-S", "s", "--", "/no/such")
	if n := until(wire.NoticeFinished); n.Status != handles.Failed || !strings.Contains(n.Error, "/no/such") {
		t.Errorf("%+v", n)
	}
	if n := until(wire.NoticeReady); n.Count != 1 {
		t.Errorf("%+v", n)
	}
	b.start("-S", "s", "--notify-match", "up", "--", "echo", "it is up")
	if n := until(wire.NoticeMatched); n.Pattern != "up" || n.From != 6 {
		t.Errorf("%+v", n)
	}
	b.want(0, "session", "close", "s")
	until(wire.NoticeClosed)
	if lines.Scan() {
		t.Errorf("after closed: %s", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("notify: %v", err)
	}
}

// G1, S2-30, S1-46, D3: closing a session ends the whole trees and says what it
// ended and dropped; the records stay, and it takes nothing any more.
func TestG1_CloseEndsAndReports(t *testing.T) {
	b := newBench(t)
	owed := b.start("-S", "s", "--", "true")
	b.want(0, "idle", "-S", "s", "--wait")
	h := b.start("-S", "s", "--", "sh", "-c", "sleep 301 & echo $!; wait")
	b.want(0, "wait-output", h, "\n")
	child := b.want(0, "logs", h)
	var rep wire.SessionReport
	if out := b.want(0, "session", "close", "s", "--json"); json.Unmarshal([]byte(out), &rep) != nil {
		t.Fatal(out)
	}
	if !slices.Equal(rep.Ended, []handles.ID{handles.ID(h)}) || len(rep.Dropped) != 2 || len(rep.StillActive)+len(rep.StillRunning) > 0 {
		t.Errorf("%+v", rep)
	}
	var pid int
	if fmt.Sscan(child, &pid); pid == 0 || lives(pid) || lives(b.show(h).PID) {
		t.Errorf("%s lives", child)
	}
	if rec := b.show(owed); rec.Delivery != handles.DeliveryDropped {
		t.Errorf("delivery %s", rec.Delivery)
	}
	b.want(exitRefused, "start", "-S", "s", "--", "true")
	b.want(0, "session", "close", "s")
	b.want(exitNoHandle, "session", "close", "nobody")
	b.want(0, "session", "open", "s")
	b.start("-S", "s", "--", "true")
}

// S1-07: a session that is bound to a process ends with it, one that is attached
// with who holds it, whatever ends that.
func TestS1_07_BoundAndAttached(t *testing.T) {
	b := newBench(t)
	b.start("--", "true") // the daemon is there
	owner := exec.Command("sleep", "600")
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	b.want(0, "session", "open", "bound", "--bind-pid", fmt.Sprint(owner.Process.Pid))
	pid := b.show(b.start("-S", "bound", "--", "sleep", "601")).PID
	if !lives(pid) {
		t.Error("it does not live")
	}
	_ = owner.Process.Kill()
	_ = owner.Wait()
	gone(t, pid, 2500*time.Millisecond)
	for how, end := range map[string]func(*exec.Cmd, *os.File){
		"killed": func(c *exec.Cmd, _ *os.File) { _ = c.Process.Kill() },
		"TERM":   func(c *exec.Cmd, _ *os.File) { _ = c.Process.Signal(syscall.SIGTERM) },
		"stdin":  func(_ *exec.Cmd, w *os.File) { w.Close() },
	} {
		cmd := b.command("session", "open", "--attach", how)
		in, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = in
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in.Close()
		if name, err := bufio.NewReader(out).ReadString('\n'); err != nil || name != how+"\n" {
			t.Fatalf("%s: printed %q, %v", how, name, err)
		}
		pid := b.show(b.start("-S", how, "--", "sleep", "602")).PID
		end(cmd, w)
		_ = cmd.Wait()
		w.Close()
		gone(t, pid, 2500*time.Millisecond)
		b.want(exitRefused, "start", "-S", how, "--", "true")
	}
}

// S3-24, S3-33: what a shell evals is its session; from within it other sessions
// and the daemon are not ended.
func TestS3_24_ShellSession(t *testing.T) {
	b := newBench(t)
	script := `set -e
eval "$(procsup session open "it's" --bind-pid $$ --shell 2>/dev/null || procsup session open mine --bind-pid $$ --shell)"
echo "$PROCSUP_SESSION ${#PROCSUP_TOKEN}"
h=$(procsup start -- sh -c 'echo $PROCSUP_SESSION; exec sleep 600')
procsup wait-output $h mine
procsup session open other >/dev/null
procsup shutdown --daemon && exit 9
procsup daemon --stop && exit 9
procsup session delete theirs && exit 9
procsup session delete other >/dev/null
procsup show $h --json
`
	b.want(0, "session", "open", "theirs")
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = b.env
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	var rec handles.Record
	if lines[0] != "mine 32" || json.Unmarshal([]byte(lines[2]), &rec) != nil || rec.SessionID != "mine" {
		t.Errorf("got %s", out)
	}
	gone(t, rec.PID, 2500*time.Millisecond) // with the shell
}

// S1-23: scopes at the command line.
func TestS1_23_ScopeVerbs(t *testing.T) {
	b := newBench(t)
	if out := b.want(0, "scope", "open", "g", "-S", "s"); out != "g" {
		t.Errorf("open printed %q", out)
	}
	b.want(0, "scope", "open", "low", "--parent", "g", "-S", "s")
	alone, one, two := b.start("-S", "s", "--scope", "g", "--", "sleep", "600"), b.start("-S", "s", "--scope", "g", "--", "sleep", "600"), b.start("-S", "s", "--scope", "low", "--", "sleep", "600")
	b.want(0, "cancel", alone)
	for _, h := range []string{one, two} {
		if rec := b.show(h); rec.Status != handles.Running {
			t.Errorf("a sibling is %s", rec.Status)
		}
	}
	if out := b.want(0, "scope", "cancel", "g", "-S", "s"); !strings.Contains(out, one) || !strings.Contains(out, two) || strings.Contains(out, alone) {
		t.Errorf("cancel: %s", out)
	}
	if rec := b.show(two); rec.Cause != handles.CauseScope {
		t.Errorf("cause %s", rec.Cause)
	}
	b.want(exitRefused, "start", "-S", "s", "--scope", "low", "--", "true")
	b.want(exitNoHandle, "start", "-S", "s", "--scope", "none", "--", "true")
	if out := b.want(0, "scope", "list", "-S", "s"); out != "g cancelled\nlow (below g) cancelled" {
		t.Errorf("list: %s", out)
	}
}

// S1-43, S1-44, S1-47, S1-31, S1-42, S2-07, S1-06, S1-01: the rest of the verbs.
func TestS1_43_ShutdownAndReads(t *testing.T) {
	b := newBench(t)
	service := b.start("-S", "s", "--kind", "test", "--lease", "service", "--", "sh", "-c", "exit 3")
	b.want(3, "wait", service)
	live := b.start("-S", "s", "--name", "web", "--", "sleep", "600")
	if out := b.want(0, "pending", "-S", "s"); out != "0" {
		t.Errorf("a service is owed: %s", out)
	}
	if out := b.want(0, "list", "--kind", "test", "--all"); !strings.Contains(out, service) || strings.Contains(out, live) || strings.Count(out, "\n") != 1 {
		t.Errorf("list --kind test:\n%s", out)
	}
	if out := b.want(0, "list", "--active", "-S", "s"); !strings.Contains(out, live) || strings.Contains(out, service) {
		t.Errorf("list --active:\n%s", out)
	}
	if out := b.want(0, "show", service, "--line"); out != service+": failed, exit 3: sh -c exit 3" {
		t.Errorf("show --line: %s", out)
	}
	run := b.command("run", "-S", "s", "--", "sh", "-c", "echo up; exec sleep 600")
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	if l, err := bufio.NewReader(out).ReadString('\n'); l != "up\n" {
		t.Fatal(l, err)
	}
	var s handles.Session
	if out := b.want(0, "session", "show", "s", "--json"); json.Unmarshal([]byte(out), &s) != nil || s.Active == "" {
		t.Errorf("session show: %s", out)
	}
	if r := b.run("shutdown", "-S", "s"); r.code != exitRefused || !strings.Contains(r.err, string(s.Active)) {
		t.Errorf("shutdown: exit %d, %s", r.code, r.err)
	}
	if !lives(b.show(live).PID) {
		t.Error("the handle was touched")
	}
	b.want(0, "cancel", "--run", "-S", "s") // S1-02
	_ = run.Wait()
	if !lives(b.show(live).PID) {
		t.Error("the handle was touched")
	}
	if out := b.want(0, "cancel", "--run", "-S", "s"); !strings.HasPrefix(out, "cancelled:false") {
		t.Errorf("cancel --run without one: %s", out)
	}
	b.want(exitRefused, "shutdown", "-S", "s", "--require-idle")
	b.want(exitRefused, "shutdown", "--daemon", "--require-idle")
	if out := b.want(0, "shutdown", "-S", "s", "--grace", "10s"); !strings.Contains(out, live) {
		t.Errorf("shutdown: %s", out)
	}
	b.start("--", "sleep", "600")
	var rep wire.DaemonReport
	if out := b.want(0, "shutdown", "--daemon", "--json"); json.Unmarshal([]byte(out), &rep) != nil || len(rep.Ended) != 1 {
		t.Errorf("shutdown --daemon: %s", out)
	}
	b.want(exitNoDaemon, "shutdown", "--daemon")
	if _, err := os.Stat(filepath.Join(b.state, "socket")); err == nil {
		t.Error("the daemon left its socket's path recorded")
	}
}

// An observer who stays does not keep the daemon from ending.
func TestShutdownDoesNotWaitForObservers(t *testing.T) {
	b := newBench(t)
	h := b.start("--stdin", "pipe", "--", "cat")
	var all []*exec.Cmd
	for _, args := range [][]string{{"notify"}, {"events", h}, {"session", "open", "--attach", "a"}} {
		cmd := b.command(args...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(args, err)
		}
		all = append(all, cmd)
	}
	began := time.Now()
	b.want(0, "daemon", "--stop")
	if d := time.Since(began); d > 8*time.Second {
		t.Errorf("it took %v", d)
	}
	for _, cmd := range all {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
