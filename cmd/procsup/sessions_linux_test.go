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
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

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

// S1-35, D8: the batch is acknowledged once it was written: a reader that dies
// S1-36: a continuation carries no text and no input; it is refused before
// S1-37: --exec hands the batch to a command, which accepts it by exit 0; else
// S1-24, S1-28, S1-30, G21: notify says subscribed, tells an end with its own
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
	if ws := run.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGTERM {
		t.Errorf("the run ended with %#x", ws)
	}
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
