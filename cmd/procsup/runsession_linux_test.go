package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// A fronted is a `procsup run -S` that has said up.
type fronted struct {
	cmd *exec.Cmd
	out *bufio.Reader
	err bytes.Buffer
}

func (b *bench) front(args ...string) *fronted {
	b.t.Helper()
	f := &fronted{cmd: b.command(append([]string{"run", "-S", "s"}, args...)...)}
	f.cmd.Stderr, f.cmd.SysProcAttr = &f.err, &syscall.SysProcAttr{Setpgid: true} // a shell gives it a group, too
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	f.out = bufio.NewReader(out)
	if l, err := f.out.ReadString('\n'); l != "up\n" {
		b.t.Fatalf("got %q, %v; %s", l, err, f.err.String())
	}
	return f
}

// end is how it ended, the rest of its output read.
func (f *fronted) end(t testing.TB) (ws syscall.WaitStatus, rest string) {
	t.Helper()
	out, err := io.ReadAll(f.out)
	if err != nil {
		t.Error(err)
	}
	_ = f.cmd.Wait()
	return f.cmd.ProcessState.Sys().(syscall.WaitStatus), string(out)
}

// active is the parent run of session s, as a handle.
func (b *bench) active() string {
	b.t.Helper()
	var s handles.Session
	if out := b.want(0, "session", "show", "s", "--json"); json.Unmarshal([]byte(out), &s) != nil || s.Active == "" {
		b.t.Fatalf("no active run: %s", out)
	}
	return string(s.Active)
}

// S1-03: a run of a session is in front: its streams are passed through byte for
// byte, procsup ends as it ended, and its end is owed to nobody.
func TestS1_03_RunInSession(t *testing.T) {
	b := newBench(t)
	input := make([]byte, 3<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(input)
	cmd := b.command("run", "-S", "s", "--", "sh", "-c", "cat; echo err >&2; exit 3")
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errOut
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 3 || !bytes.Equal(out.Bytes(), input) || errOut.String() != "err\n" {
		t.Errorf("%v, %d bytes of %d, stderr %q", err, out.Len(), len(input), errOut.String())
	}
	if out := b.want(0, "pending", "-S", "s"); out != "0" {
		t.Errorf("%s owed", out)
	}
	for script, code := range map[string]int{"exit 0": 0, "exit 200": 200, "exit 143": 143} {
		if r := b.run("run", "-S", "s", "--", "sh", "-c", script); r.code != code || r.err != "" {
			t.Errorf("%s: exit %d, %q", script, r.code, r.err)
		}
	}
	for args, code := range map[string]int{"--deadline 50ms -- sleep 600": exitDeadline, "-- /no/such": exitNotFound, "-- /etc/passwd": exitCannot, "--dir /nowhere -- true": exitProcsup} {
		b.want(code, append([]string{"run", "-S", "s"}, strings.Fields(args)...)...)
	}
	for _, flag := range []string{"--pty", "--forward", "--capture=x", "--events-to=x"} {
		b.want(exitUsage, "run", "-S", "s", flag, "--", "true")
	}
	for _, args := range [][]string{{"--scope", "g"}, {"--background-after", "1s"}, {"--kind", "test"}, {"--socket", "x"}} {
		b.want(exitUsage, append(append([]string{"run"}, args...), "--", "true")...)
	}
	b.want(exitUsage, "run", "-S", "", "--", "true")
	cmd = b.command("run", "-S", "s", "--", "sh", "-c", `readlink /proc/self/fd/0; echo $PROCSUP_SESSION`)
	cmd.Stdin = nil // /dev/null
	if got, err := cmd.Output(); string(got) != "/dev/null\ns\n" || err != nil {
		t.Errorf("with no input: %q, %v", got, err)
	}
	if out := b.want(0, "run", "-S", "s", "--env-mode", "empty", "--", "/usr/bin/env"); strings.Contains(out, "PROCSUP_SESSION") {
		t.Errorf("an empty environment: %s", out)
	}
}

// The record of a run of a session is that of any other.
func TestRunInSessionJSON(t *testing.T) {
	b := newBench(t)
	var rec handles.Record
	file := filepath.Join(t.TempDir(), "result")
	r := b.run("run", "-S", "s", "--json", "--result", file, "--", "sh", "-c", "echo hello; echo oops >&2; exit 5")
	if err := json.Unmarshal([]byte(r.out), &rec); err != nil || r.code != 5 || rec.Kind != "run" || rec.Stdout.Text != "hello\n" || rec.Stderr.Text != "oops\n" || *rec.ExitCode != 5 {
		t.Errorf("exit %d, %s%s", r.code, r.out, r.err)
	}
	if written, err := os.ReadFile(file); err != nil || string(written) != r.out {
		t.Errorf("--result: %s, %v", written, err)
	}
	r = b.run("run", "-S", "s", "--json", "--deadline", "50ms", "--", "sleep", "600")
	if err := json.Unmarshal([]byte(r.out), &rec); err != nil || r.code != exitDeadline || rec.Cause != handles.CauseDeadline { // S1-12
		t.Errorf("exit %d, %s", r.code, r.out)
	}
}

// S1-20, A11: INT, TERM, HUP and QUIT end the run with that signal first, and
// procsup as it ended; a second one goes to the next step. cancel is the same.
func TestS1_20_SignalsCancelTheRun(t *testing.T) {
	b := newBench(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		f := b.front("--", "sh", "-c", "echo up; exec sleep 600")
		h := b.active()
		_ = f.cmd.Process.Signal(sig)
		if ws, _ := f.end(t); !ws.Signaled() || ws.Signal() != sig || ws.CoreDump() {
			t.Errorf("%v: ended with %#x; %s", sig, ws, f.err.String())
		}
		if rec := b.show(h); rec.Status != handles.Killed || rec.Cause != handles.CauseCancelled || rec.Stop.By != "user" || rec.Cleanup.Signals[0].Signal != rec.Signal {
			t.Errorf("%v: %+v", sig, rec)
		}
	}
	f := b.front("--grace", "10m", "--", "sh", "-c", "trap 'echo got; trap \"\" TERM' TERM; echo up; while :; do sleep 0.05; done")
	h := b.active()
	_ = f.cmd.Process.Signal(syscall.SIGTERM)
	if l, err := f.out.ReadString('\n'); l != "got\n" {
		t.Fatal(l, err)
	}
	_ = f.cmd.Process.Signal(syscall.SIGTERM)
	_ = f.cmd.Process.Signal(syscall.SIGTERM)
	if ws, _ := f.end(t); ws.Signal() != syscall.SIGKILL {
		t.Errorf("hurried: ended with %#x; %s", ws, f.err.String())
	}
	if rec := b.show(h); rec.DurationMS > 30_000 {
		t.Errorf("it took %d ms", rec.DurationMS)
	}
	f = b.front("--exit-code", "--", "sh", "-c", "echo up; exec sleep 600")
	b.want(0, "cancel", "--run", "-S", "s")
	if ws, _ := f.end(t); ws.ExitStatus() != 128+15 {
		t.Errorf("--exit-code: ended with %#x", ws)
	}
}

// A11: other signals are the command's, as without the daemon; TSTP stops both,
// and CONT continues both.
func TestA11_SignalsArePassedOn(t *testing.T) {
	b := newBench(t)
	f := b.front("--", "sh", "-c", "trap 'kill $!; exit 7' USR1; trap 'echo cont' CONT; sleep 600 & echo up; while :; do wait; done")
	pid := f.cmd.Process.Pid
	leader := b.show(b.active()).PID
	_ = syscall.Kill(pid, syscall.SIGTSTP)
	var ws syscall.WaitStatus
	if got, err := syscall.Wait4(pid, &ws, syscall.WUNTRACED, nil); err != nil || got != pid || !ws.Stopped() {
		t.Fatalf("procsup: %#x, %v, want it stopped", ws, err)
	}
	st, err := platform.ReadStat(leader)
	for until := time.Now().Add(long); err == nil && st.State != 'T' && time.Now().Before(until); { // it has the signal, and needs a processor
		time.Sleep(time.Millisecond)
		st, err = platform.ReadStat(leader)
	}
	if st.State != 'T' {
		t.Errorf("the command is %c (%v), want it stopped", st.State, err)
	}
	_ = syscall.Kill(pid, syscall.SIGCONT)
	if l, err := f.out.ReadString('\n'); l != "cont\n" {
		t.Errorf("%q, %v", l, err)
	}
	_ = syscall.Kill(pid, syscall.SIGUSR1)
	if ws, _ := f.end(t); ws.ExitStatus() != 7 {
		t.Errorf("ended with %#x; %s", ws, f.err.String())
	}
}

// S1-11: busy names the active run, and other sessions are free.
func TestS1_11_BusySession(t *testing.T) {
	b := newBench(t)
	f := b.front("--", "sh", "-c", "echo up; exec sleep 600")
	h := b.active()
	if r := b.run("run", "-S", "s", "--", "true"); r.code != exitRefused || !strings.Contains(r.err, h) {
		t.Errorf("exit %d, %s", r.code, r.err)
	}
	b.want(0, "run", "-S", "t", "--", "true")
	b.start("-S", "s", "--", "true") // a handle is not a run
	b.want(0, "cancel", "--run", "-S", "s")
	f.end(t)
	b.want(0, "run", "-S", "s", "--", "true")
}

// S1-19, S1-45, G9: the client is killed: the whole tree ends, owner_gone; until
// that is settled the session is busy, and another client can wait for it.
func TestS1_19_KilledClient(t *testing.T) {
	b := newBench(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f := b.front("--grace", "1m", "--", "sh", "-c", `trap 'echo stop; read x <$0; exit 0' TERM; echo up; sleep 600 & wait; wait`, fifo)
	h := b.active()
	_ = f.cmd.Process.Kill()
	f.end(t)
	b.want(0, "wait-output", h, "stop")
	b.want(exitRefused, "shutdown", "-S", "s")
	if rec := b.show(h); rec.Status != handles.Stopping {
		t.Errorf("it is %s", rec.Status)
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	b.want(0, "wait", h)
	if rec := b.show(h); rec.Status != handles.Killed || rec.Cause != handles.CauseOwnerGone || !rec.Graceful || len(rec.Cleanup.Survivors) > 0 {
		t.Errorf("%s by %s", rec.Status, rec.Cause)
	}
	b.want(0, "shutdown", "-S", "s")
}

// S2-18, A7: the supervisor is killed again and again while bytes go in and out:
// none is lost, none twice, and the run goes on.
func TestS2_18_RunSurvivesAKilledSupervisor(t *testing.T) {
	b := newBench(t)
	c := b.client()
	defer c.Close()
	cmd := b.command("run", "-S", "s", "--", "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	piece := bytes.Repeat([]byte("0123456789abcde\n"), 16<<10) // more than a pipe takes
	got, read := make([]byte, len(piece)), bufio.NewReader(out)
	echo := func() {
		t.Helper()
		go func() { _, _ = in.Write(piece) }() // ends with its reader
		if _, err := io.ReadFull(read, got); err != nil || !bytes.Equal(got, piece) {
			t.Fatalf("%v", err)
		}
	}
	echo()
	for range 4 {
		hello, err := c.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = in.Write(piece) }() // in the middle of it
		if _, err := io.ReadFull(read, got[:1000]); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(hello.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(read, got[1000:]); err != nil || !bytes.Equal(got, piece) {
			t.Fatalf("over the death: %v", err)
		}
		echo()
	}
	in.Close()
	if rest, err := io.ReadAll(read); err != nil || len(rest) > 0 {
		t.Errorf("%d bytes more, %v", len(rest), err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// --background-after releases the run: what it wrote was passed on, the session
// is free, its end is owed; the client's end is not its end any more.
func TestRunGoesToTheBackground(t *testing.T) {
	b := newBench(t)
	r := b.run("run", "-S", "s", "--background-after", "200ms", "--json", "--", "sh", "-c", "echo so far; sleep 600")
	var a wire.Started
	if err := json.Unmarshal([]byte(r.out), &a); err != nil || r.code != 0 || a.Record.Stdout.Text != "so far\n" || a.Record.Status != handles.Running || !strings.Contains(r.err, string(a.HandleID)) {
		t.Errorf("exit %d, %s%s", r.code, r.out, r.err)
	}
	h := string(a.HandleID)
	if rec := b.show(h); rec.Kind != "handle" || rec.Lifetime != "session" || rec.Delivery != handles.DeliveryPending || !lives(rec.PID) {
		t.Errorf("%+v", rec)
	}
	b.want(0, "run", "-S", "s", "--", "true")
	b.want(0, "cancel", h)
	if w := b.batch(); w.Count != 1 || string(w.Completions[0].HandleID) != h {
		t.Errorf("owed: %+v", w)
	}
	// Over the death of the supervisor the time in front goes on, and ends once.
	f := b.front("--background-after", "1s", "--", "sh", "-c", "echo up; exec sleep 600")
	h = b.active()
	c := b.client()
	defer c.Close()
	hello, err := c.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(hello.PID, syscall.SIGKILL)
	if ws, _ := f.end(t); ws != 0 || !strings.Contains(f.err.String(), h+" goes on") {
		t.Errorf("ended with %#x; %s", ws, f.err.String())
	}
	if hello, err = c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(hello.PID, syscall.SIGKILL)
	if rec := b.show(h); rec.Status != handles.Running || rec.Kind != "handle" {
		t.Errorf("%s %s", rec.Kind, rec.Status)
	}
	b.want(0, "session", "clear", "s")
	r = b.run("run", "-S", "s", "--background-after", "30s", "--", "sh", "-c", "echo all; exit 6")
	if r.code != 6 || r.out != "all\n" || r.err != "" {
		t.Errorf("in time: exit %d, %s%s", r.code, r.out, r.err)
	}
	if w := b.batch(); w.Count != 0 {
		t.Errorf("owed as well: %+v", w)
	}
}

// A reader of our output that goes away is a SIGPIPE for the command.
func TestRunInSessionBrokenPipe(t *testing.T) {
	b := newBench(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := b.command("run", "-S", "s", "--", "yes")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := r.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	_ = cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGPIPE {
		t.Errorf("ended with %#x", ws)
	}
}
