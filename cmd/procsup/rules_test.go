//go:build linux

package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
)

// shell runs a script as a user's would be, with procsup in its PATH.
func (b *bench) shell(script string) result {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "sh", "-c", script)
	cmd.Env = b.env
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		b.t.Fatal(err)
	}
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// The idiom of S2-13: start, wait for a line on stderr, clean up whatever happens.
const idiom = `
h=$(procsup start -- sh -c "$SERVER")
echo "handle $h"
trap 'procsup cancel "$h" --wait-result 5s >cancelled' EXIT
ready=$(procsup wait-output "$h" 'listening on' --source stderr --timeout 10s --json 2>why | jq -r .status)
[ "$ready" = matched ] || { echo "server is not ready: $ready: $(cat why)" >&2; exit 1; }
echo "$ready"
`

// S2-13: the shell version of the example, when it is ready and when it never
// will be: the error says how it stands, and nothing is left either way.
func TestS2_13_StartWaitCancelInAScript(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		if os.Getenv("PROCSUP_NO_SKIP") != "" {
			t.Fatal("no jq")
		}
		t.Skip("no jq")
	}
	b := newBench(t)
	dir := t.TempDir()
	for name, c := range map[string]struct {
		server    string
		code      int
		out, err  string
		cancelled string
		status    handles.Status
	}{
		"ready": {"echo listening on stdout does not count; echo listening on 80 >&2; sleep 600 & exec sleep 600",
			0, "matched\n", "", "cancelled:true", handles.Killed},
		"ended before": {"echo listening on stdout does not count; echo no port >&2; exit 3",
			1, "", "server is not ready: exited: procsup: wait-output: ", "cancelled:false", handles.Failed},
	} {
		r := b.shell("cd " + dir + "; SERVER='" + c.server + "'; export SERVER" + idiom)
		head, rest, _ := strings.Cut(r.out, "\n")
		h := strings.TrimPrefix(head, "handle ")
		if r.code != c.code || rest != c.out || !strings.HasPrefix(r.err, c.err) || c.err == "" && r.err != "" {
			t.Errorf("%s: exit %d, prints %q and %q", name, r.code, r.out, r.err)
		}
		if c.err != "" && (!strings.Contains(r.err, h) || !strings.Contains(r.err, "failed, exit 3")) {
			t.Errorf("%s: the error does not say how %s stands: %q", name, h, r.err)
		}
		said, err := os.ReadFile(filepath.Join(dir, "cancelled"))
		if err != nil || !strings.HasPrefix(string(said), c.cancelled) {
			t.Errorf("%s: cancel says %q, %v", name, said, err)
		}
		rec := b.show(h)
		if rec.Status != c.status || len(groupOf(t, rec.GroupID)) > 0 {
			t.Errorf("%s: %s, left %v", name, rec.Status, groupOf(t, rec.GroupID))
		}
	}
}

// S2-09: wait ends as the command did, for the one that waits while it runs, a
// second one, and whoever comes later.
func TestS2_09_WaitIsTheSameForAll(t *testing.T) {
	b := newBench(t)
	h := b.start("--stdin", "pipe", "--", "sh", "-c", "read line; exit 7")
	var waiters []*exec.Cmd
	for range 2 {
		cmd := b.command("wait", h)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waiters = append(waiters, cmd)
	}
	b.want(0, "send", h, "go")
	for i, cmd := range waiters {
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("waiter %d: %v", i, cmd.ProcessState)
		}
	}
	b.want(7, "wait", h)
	b.want(7, "wait", h, "--timeout", "1s")
}

// S2-24, S1-10: start answers before the command has done anything: here it
// can do nothing until the answer is there.
func TestS2_24_AnEnvelopeAtOnce(t *testing.T) {
	b := newBench(t)
	fifo := filepath.Join(t.TempDir(), "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	h := b.start("--", "sh", "-c", `read line <"$0"; echo $line; exit 4`, fifo) // opening it blocks until somebody writes
	rec := b.show(h)
	if rec.Status != handles.Running || rec.PID == 0 || rec.Output.Stdout.Bytes != 0 {
		t.Errorf("at once: %+v", rec)
	}
	if err := os.WriteFile(fifo, []byte("gone\n"), 0); err != nil {
		t.Fatal(err)
	}
	b.want(4, "wait", h)
	if out := b.want(0, "logs", h); out != "gone" {
		t.Errorf("logs: %q", out)
	}
}

// Records of what has ended go after their time, with the output; the daemon's
// flag says which that is.
func TestKeepRecords(t *testing.T) {
	b := newBench(t)
	h := b.start("--", "echo", "old")
	b.want(0, "wait", h)
	path := b.show(h).Output.Stdout.Path
	b.want(0, "daemon", "--stop")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	daemon := b.command("daemon", "--keep-records", "1ms", "--ready-fd", "3")
	daemon.ExtraFiles = []*os.File{w}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the daemon said %q, %v", line, err)
	}
	c := b.client()
	defer c.Close()
	for end := time.Now().Add(long); ; { // its first look is beside the first calls
		_, err := c.Show(t.Context(), h)
		if _, there := os.Stat(filepath.Dir(path)); errors.Is(err, handles.ErrNotFound) && errors.Is(there, os.ErrNotExist) {
			break
		}
		if err != nil && !errors.Is(err, handles.ErrNotFound) || time.Now().After(end) {
			t.Fatalf("the record is still there, or its output: %v", err)
		}
	}
	b.want(0, "daemon", "--stop")
	if err := daemon.Wait(); err != nil {
		t.Error(err)
	}
}
