//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// Flags may stand behind arguments; what follows -- is never one.
func TestFlagsFirst(t *testing.T) {
	app := newApp(io.Discard, io.Discard, nil)
	for in, want := range map[string]string{
		"wait h --timeout 1s g":    "wait --timeout 1s -- h g",
		"wait h --timeout=1s":      "wait --timeout=1s -- h",
		"logs h -f --tail 3":       "logs -f --tail 3 -- h",
		"logs -f h":                "logs -f -- h",
		"send h -- --close":        "send -- h --close",
		"wait-output h -":          "wait-output -- h -",
		"run --json ls -l":         "run --json ls -l",
		"start ls -l":              "start ls -l",
		"daemon --stop":            "daemon --stop",
		"nonsense a --b":           "nonsense a --b",
		"wait --nonsense h --json": "wait --nonsense --json -- h",
		"list":                     "list",
	} {
		got := flagsFirst(app, append([]string{"procsup"}, strings.Fields(in)...))
		if s := strings.Join(got[1:], " "); s != want {
			t.Errorf("%s: got %s, want %s", in, s, want)
		}
	}
}

// Every verb has a help with examples.
func TestVerbsHaveExamples(t *testing.T) {
	for _, c := range daemonVerbs(nil) {
		if _, after, ok := strings.Cut(c.Description, "Examples:"); !ok || !strings.Contains(after, "procsup "+c.Name) {
			t.Errorf("%s: no example in its help", c.Name)
		}
	}
}

// Bad input is refused with 64 before anything happens: not even a daemon is
// started for it.
func TestBadInputDoesNothing(t *testing.T) {
	b := newBench(t)
	for _, args := range [][]string{
		{"start"}, {"start", "--"}, {"start", "--deadline", "soon", "--", "true"}, {"start", "--grace", "-1s", "true"},
		{"start", "--max-output", "0", "true"}, {"start", "--stop-signal", "STOP", "true"}, {"start", "--leftover", "x", "true"},
		{"start", "--containment", "x", "true"}, {"start", "--env", "NOVALUE", "true"}, {"start", "--env-mode", "x", "true"},
		{"start", "--nonsense", "true"}, {"start", "--background-after", "x", "true"},
		{"wait"}, {"wait", "h", "--timeout", "x"}, {"wait-output", "h"}, {"wait-output", "h", ""}, {"wait-output", "h", "(", "--regex"},
		{"wait-output", "h", "x", "--source", "fd3"}, {"wait-output", "h", "x", "--from", "-1"},
		{"cancel"}, {"cancel", "h", "--grace", "x"}, {"cancel", "h", "--wait-result", "-1"}, {"cancel", "h", "--signal", "CONT"},
		{"restart"}, {"restart", "a", "b"}, {"signal", "h"}, {"signal", "h", "NOPE"}, {"send"}, {"send", "h", "a", "b"},
		{"show"}, {"show", "a", "b"}, {"list", "x"}, {"list", "--limit", "-1"}, {"list", "--limit", "x"},
		{"logs"}, {"logs", "h", "--tail", "-1"}, {"logs", "h", "--view", "x"}, {"logs", "h", "--from", "x"}, {"logs", "h", "--max-bytes", "0"},
		{"logs", "h", "--source", "x"}, {"logs", "h", "--from", "1", "--tail", "1"}, {"journal", "x"}, {"journal", "--after", "-1"},
	} {
		b.want(exitUsage, args...)
	}
	b.want(exitProcsup, "start", "--dir", "/nowhere", "--", "true")
	b.want(exitProcsup, "start", "--stdin", "/nowhere", "--", "true")
	b.want(exitNotFound, "start", "")
	if entries, err := filepath.Glob(filepath.Dir(b.socket) + "/*"); err != nil || len(entries) > 0 {
		t.Errorf("there is %v now", entries)
	}
}

// S2-29, S2-32, S2-11: cancel is idempotent, and late is normal.
func TestS2_29_CancelIsIdempotent(t *testing.T) {
	b := newBench(t)
	h := b.start("--", "sh", "-c", "sleep 100 & sleep 100")
	if out := b.want(0, "cancel", h, "--wait-result", "20s"); !strings.HasPrefix(out, "cancelled:true") {
		t.Errorf("the first: %s", out)
	}
	if out := b.want(0, "cancel", h); !strings.HasPrefix(out, "cancelled:false") {
		t.Errorf("the second: %s", out)
	}
	if members := groupOf(t, b.show(h).GroupID); len(members) > 0 {
		t.Errorf("left of the group: %v", members)
	}
	h = b.start("--", "true")
	b.want(0, "wait", h)
	var k flatCancel
	if out := b.want(0, "cancel", "--json", h); json.Unmarshal([]byte(out), &k) != nil || k.Cancelled || k.Status != handles.Completed {
		t.Errorf("one that had ended: %s", out)
	}
	b.want(exitNoHandle, "cancel", "nobody")
	h = b.start("--grace", "1s", "--", "sh", "-c", "trap '' TERM; echo armed; while :; do sleep 1; done")
	b.want(0, "wait-output", h, "armed")
	b.want(exitTimedOut, "cancel", h, "--wait-result", "0.1")
}

func groupOf(t testing.TB, pgid int) (pids []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if f[2] == fmt.Sprint(pgid) && f[0] != "Z" {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// S2-10: matched, ended before the match, timed out; a match wins over an end.
func TestS2_10_WaitOutput(t *testing.T) {
	b := newBench(t)
	h := b.start("--", "sh", "-c", "printf 'port 4%d1' 2; echo problem >&2; exec sleep 100")
	if out := b.want(0, "wait-output", h, "--regex", `port \d+`, "--timeout", "20s"); out != "port 421" {
		t.Errorf("matched %q", out)
	}
	b.want(0, "wait-output", h, "problem")
	b.want(exitTimedOut, "wait-output", h, "problem", "--source", "stdout", "--timeout", "0.1")
	b.want(exitTimedOut, "wait-output", h, "port", "--from", "3", "--timeout", "0.1")
	b.want(0, "cancel", h)
	b.want(exitNoMatch, "wait-output", h, "nothing of it")
	for pattern, status := range map[string]string{"problem": wire.Matched, "nothing": wire.Exited} {
		r := b.run("wait-output", h, pattern, "--json")
		var w wire.OutputWaited
		if json.Unmarshal([]byte(r.out), &w) != nil || w.Status != status || w.Record == nil {
			t.Errorf("%s: %s", pattern, r.out)
		}
	}
	b.want(exitNoHandle, "wait-output", "nobody", "x")
}

// S3-29, S3-31: a wait that times out is an observation: 75, and the run goes on.
func TestS3_31_WaitTimeoutEndsNothing(t *testing.T) {
	b := newBench(t)
	h := b.start("--name", "sleeper", "--", "sleep", "100")
	for timeout, status := range map[string]string{"0": wire.WaitPending, "0.05": wire.WaitTimeout} {
		r := b.run("wait", "sleeper", "--json", "--timeout", timeout)
		var w flatWait
		if err := json.Unmarshal([]byte(r.out), &w); err != nil || r.code != exitTimedOut || w.WaitStatus != status || w.Status != handles.Running {
			t.Errorf("--timeout %s: exit %d, %s %v", timeout, r.code, r.out, err)
		}
	}
	if rec := b.show(h); rec.Liveness != "live" {
		t.Errorf("the run is %s", rec.Status)
	}
	bad, good := b.start("--", "sh", "-c", "exit 9"), b.start("--", "true")
	worse := b.start("--", "sh", "-c", "exit 8")
	b.want(9, "wait", good, bad, worse, good)
	b.want(128+15, "wait", b.start("--", "sh", "-c", "kill -TERM $$"))
	b.want(exitDeadline, "wait", b.start("--deadline", "0.05", "--", "sleep", "100"))
	b.want(exitNoHandle, "wait", "nobody")
}

// S2-18, A7, G23: a wait survives a SIGKILL of the supervisor, and the command
// and its output do.
func TestS2_18_WaitSurvivesAKilledSupervisor(t *testing.T) {
	b := newBench(t)
	h := b.start("--stdin", "pipe", "--", "sh", "-c", "echo one; read x; echo two; exit 5")
	cmd := b.command("wait", h)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	follow := b.command("logs", "-f", h)
	lines, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(lines)
	if l, err := r.ReadString('\n'); l != "one\n" {
		t.Fatalf("followed %q, %v", l, err)
	}
	c := b.client()
	defer c.Close()
	for range 3 {
		hello, err := c.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(hello.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Hello(t.Context()); err != nil { // it is back
		t.Fatal(err)
	}
	b.want(0, "send", h, "go")
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("wait: exit %d", code)
	}
	rest, err := io.ReadAll(r)
	if err := follow.Wait(); err != nil || string(rest) != "two\n" {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	if err != nil {
		t.Error(err)
	}
}

// The caller's environment, directory and umask are the command's.
func TestStartIsAsTheCallerIs(t *testing.T) {
	b := newBench(t)
	b.start("--", "true") // the daemon has our umask
	dir := t.TempDir()
	cmd := b.command("start", "--env", "B=two words", "--", "sh", "-c", `pwd; umask; echo "$A/$B/${PROCSUP_SOCKET:+socket}"; readlink /proc/self/fd/0`)
	cmd.Dir, cmd.Env = dir, append(cmd.Env, "A=\"one\"")
	old := syscall.Umask(0o027)
	out, err := cmd.Output()
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	h := strings.TrimSpace(string(out))
	b.want(0, "wait", h)
	if got, want := b.want(0, "logs", h), dir+"\n0027\n\"one\"/two words/socket\n/dev/null"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.want(exitNotFound, "start", "--", "no-such-command")
	first := b.start("--idempotency-key", "k", "--", "true")
	if again := b.start("--idempotency-key", "k", "--", "true"); again != first {
		t.Errorf("the same key and the same start: %s and %s", first, again)
	}
	b.want(exitRefused, "start", "--idempotency-key", "k", "--", "false")
}

// send, signal, restart: by name, one after the other.
func TestSendSignalRestart(t *testing.T) {
	b := newBench(t)
	h := b.start("--stdin", "pipe", "--name", "cat", "--", "sh", "-c", "trap 'echo hup' HUP; while read x; do echo got $x; done; echo end; exec sleep 100")
	b.want(0, "send", "cat", "one line")
	b.want(0, "wait-output", "cat", "got one line\n")
	b.want(0, "signal", "cat", "HUP", "--leader")
	b.want(0, "wait-output", "cat", "hup")
	if r := b.runIn("two\nthree", "send", "cat", "--close"); r.code != 0 {
		t.Errorf("send from stdin: exit %d, %s", r.code, r.err)
	}
	b.want(0, "wait-output", "cat", "end")
	again := b.want(0, "restart", "cat")
	if again == h || !strings.HasPrefix(again, handles.CommandPrefix) {
		t.Errorf("restart printed %q after %q", again, h)
	}
	if rec := b.show(again); rec.Name != "cat" || rec.Status != handles.Running {
		t.Errorf("the new one: %s is %s", rec.Name, rec.Status)
	}
	b.want(exitRefused, "signal", h, "HUP")
	b.want(exitRefused, "send", h, "x")
}

// --background-after answers with the end if that comes first.
func TestBackgroundAfter(t *testing.T) {
	b := newBench(t)
	r := b.run("start", "--json", "--background-after", "20s", "--", "sh", "-c", "echo hello; exit 6")
	var a wire.Started
	if err := json.Unmarshal([]byte(r.out), &a); err != nil || r.code != 6 || a.Record == nil || a.Record.Stdout == nil || a.Record.Stdout.Text != "hello\n" {
		t.Errorf("ended in front: exit %d, %s, %v", r.code, r.out, err)
	}
	r = b.run("start", "--json", "--background-after", "50ms", "--", "sleep", "100")
	if err := json.Unmarshal([]byte(r.out), &a); err != nil || r.code != 0 || a.Record.Status != handles.Running {
		t.Errorf("gone to the background: exit %d, %s, %v", r.code, r.out, err)
	}
}

// list is aligned, newest first, and live ones only unless asked.
func TestList(t *testing.T) {
	b := newBench(t)
	done := b.start("--", "sh", "-c", "exit 3\n# \x1b[31m")
	b.want(3, "wait", done)
	first, second := b.start("--name", "web", "--", "sleep", "100"), b.start("-S", "other", "--", "sleep", "100")
	rows := strings.Split(b.want(0, "list", "--all"), "\n")
	if len(rows) != 4 || !strings.HasPrefix(rows[1], second) || !strings.HasPrefix(rows[2], first) || !strings.HasPrefix(rows[3], done) {
		t.Fatalf("list --all:\n%s", strings.Join(rows, "\n"))
	}
	for i, command := range []string{"COMMAND", "sleep 100", "sleep 100", "sh -c"} {
		if strings.Index(rows[i], command) != strings.Index(rows[0], "COMMAND") {
			t.Errorf("%q is not aligned with %q", rows[i], rows[0])
		}
	}
	if strings.Contains(rows[3], "\x1b") {
		t.Errorf("an escape reaches the terminal: %q", rows[3])
	}
	if out := b.want(0, "list"); strings.Contains(out, done) || strings.Count(out, "\n") != 2 {
		t.Errorf("list:\n%s", out)
	}
	if out := b.want(0, "list", "-S", "other"); strings.Contains(out, first) || !strings.Contains(out, second) {
		t.Errorf("list -S other:\n%s", out)
	}
	var l wire.List
	if out := b.want(0, "list", "--all", "--limit", "1", "--json"); json.Unmarshal([]byte(out), &l) != nil || len(l.Handles) != 1 || !l.More {
		t.Errorf("list --limit 1: %s", out)
	}
}

// A prefix of an id will do when it is the only one's; a name is looked up in
// the session.
func TestHandlesByPrefixAndName(t *testing.T) {
	b := newBench(t)
	h := b.start("--name", "db", "--", "sleep", "100")
	for _, ref := range []string{h, h[:len(h)-3], "db"} {
		if got := string(b.show(ref).HandleID); got != h {
			t.Errorf("%s is %s", ref, got)
		}
	}
	b.want(exitNoHandle, "show", "db", "-S", "other")
	b.want(exitNoHandle, "show", "a/../b")
	b.start("--", "sleep", "100")
	b.want(exitNoHandle, "show", h[:len(handles.CommandPrefix)+3])
	b.want(exitRefused, "start", "--name", "db", "--", "true")
}

// The journal is read in order, and is sound.
func TestJournalVerb(t *testing.T) {
	b := newBench(t)
	h := b.start("--", "true")
	b.want(0, "wait", h)
	var kinds []string
	for _, line := range strings.Split(b.want(0, "journal", "--run", h, "--json"), "\n") {
		var e wire.JournalEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		kinds = append(kinds, e.Kind)
	}
	if want := []string{"admitted", "spawned", "ended"}; !slices.Equal(kinds, want) {
		t.Errorf("rows %q, want %q", kinds, want)
	}
	if out := b.want(0, "journal", "check"); !strings.HasSuffix(out, "sound") {
		t.Errorf("check: %s", out)
	}
}

// `procsup daemon` is procsupd: its flags, its exit codes.
func TestDaemonVerb(t *testing.T) {
	b := newBench(t)
	b.want(exitNoDaemon, "daemon", "--status")
	b.start("--", "true")
	if out := b.want(0, "daemon", "--status"); !strings.Contains(out, b.state) {
		t.Errorf("status: %s", out)
	}
	b.want(0, "daemon", "--replace")
	b.want(0, "daemon", "--stop")
	b.want(exitNoDaemon, "daemon", "--status")
	b.want(exitUsage, "daemon", "--nonsense")
}
