package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// wait-ready tells ready, ended before and not in time apart by its exit code.
func TestWaitReadyVerb(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	h := b.start("--name", "web", "--ready", "output:listening", "--ready", "file:up", "--dir", dir, "--", "sh", "-c", "echo listening; exec sleep 600")
	if r := b.run("wait-ready", "web", "--timeout", "0"); r.code != exitTimedOut || !strings.Contains(r.err, "file:up") {
		t.Errorf("not ready: %+v", r)
	}
	if err := os.WriteFile(filepath.Join(dir, "up"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var w wire.ReadyWaited
	if out := b.want(0, "wait-ready", h, "--json"); json.Unmarshal([]byte(out), &w) != nil || w.Status != wire.Ready || w.Record.ReadyAt.IsZero() {
		t.Errorf("ready: %s", out)
	}
	if out := b.want(0, "show", h); !strings.Contains(out, "ready since ") || !strings.Contains(out, "output:listening: held (listening)") {
		t.Errorf("show: %s", out)
	}
	if out := b.want(0, "list"); !strings.Contains(out, "running, ready") {
		t.Errorf("list: %s", out)
	}
	b.want(0, "cancel", h)
	if r := b.run("wait-ready", h); r.code != exitNoMatch || !strings.Contains(r.err, "it was ready before") {
		t.Errorf("ended: %+v", r)
	}
	h = b.start("--ready", "output:never", "--ready-timeout", "2s", "--", "sh", "-c", "echo almost; exec sleep 600")
	if r := b.run("wait-ready", h); r.code != exitNoMatch || !strings.Contains(r.err, "start_aborted") || !strings.Contains(r.err, "not ready within 2s: output:never") || !strings.Contains(r.err, "\n  almost\n") {
		t.Errorf("aborted: %+v", r)
	}
	if r := b.run("wait", h); r.code != exitNoMatch || !strings.Contains(r.err, "output:never") {
		t.Errorf("wait of an aborted one: %+v", r)
	}
	b.want(exitRefused, "wait-ready", b.start("sleep", "600"))
	b.want(exitNoHandle, "wait-ready", "nobody")
}

// Bad conditions start nothing, in no verb.
func TestReadyBadInput(t *testing.T) {
	b := newBench(t)
	for _, args := range [][]string{
		{"start", "--ready", "nonsense", "true"}, {"start", "--ready", "fd:0", "true"}, {"start", "--ready", "notify", "--ready-timeout", "x", "true"},
		{"start", "--ready-timeout", "1s", "true"}, {"start", "--watchdog", "1s", "true"}, {"wait-ready"}, {"wait-ready", "a", "b"}, {"wait-ready", "h", "--timeout", "-1"},
		{"await"}, {"await", "notify"}, {"await", "tcp:80"}, {"await", "--nonsense", "file:/"}, {"await", "file:/", "--timeout"}, {"await", "file:/", "--timeout", "x"}, {"await", "file:/", "--"},
		{"with", "true"}, {"with", "--ready", "notify", "true", "--then"}, {"with", "--ready", "notify", "--then", "true"}, {"with", "true", "--then", "true"}, {"with", "--ready", "x", "true", "--then", "true"},
		{"with", "--stdin", "pipe", "--ready", "notify", "true", "--then", "true"},
	} {
		b.want(exitUsage, args...)
	}
	if out := b.want(0, "list", "--all"); out != "" {
		t.Errorf("there is %s", out)
	}
}

// What npm's wait-on is tested for, in our words: a path, http, tcp, a socket,
// http over a socket, a timeout, the reverse; and then a command in our place.
func TestAwaitAsWaitOn(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	file, sock := filepath.Join(dir, "file"), filepath.Join(dir, "sock")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	all := []string{"await", "file:" + file, "tcp:" + addr, "unix:" + sock, "http://" + addr + "/ok", "http://unix:" + sock + ":/ok", "http://" + addr + "/missing=404"}
	if r := b.run(append(all, "--timeout", "100ms")...); r.code != exitTimedOut || strings.Count(r.err, "procsup: await: after ") != 6 {
		t.Errorf("none: %+v", r)
	}
	cmd := b.command(append(all, "--", "sh", "-c", "echo I am $$; exit 9")...)
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			w.WriteHeader(404)
		}
	})}
	for _, on := range []struct{ network, addr string }{{"tcp", addr}, {"unix", sock}} {
		l, err := net.Listen(on.network, on.addr)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = srv.Serve(l) }() // ends with the server
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 9 || out.String() != fmt.Sprintf("I am %d\n", cmd.Process.Pid) {
		t.Errorf("%v, wrote %q, was %d", err, out.String(), cmd.Process.Pid)
	}
	b.want(0, "await", "--any", "file:/nowhere", "tcp:"+addr)
	b.want(exitTimedOut, "await", "--gone", "tcp:"+addr, "--timeout", "0")
	gone := b.command("await", "--gone", "tcp:"+addr, "unix:"+sock, "file:"+file, "http://"+addr+"/ok")
	if err := gone.Start(); err != nil {
		t.Fatal(err)
	}
	srv.Close()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := gone.Wait(); err != nil {
		t.Errorf("gone: %v", err)
	}
	b.want(exitNotFound, "await", "file:/", "--", "no-such-command")
	b.want(exitCannot, "await", "file:/", "--", "/etc/passwd")
	if out := b.want(0, "await", "--help"); !strings.Contains(out, "Examples:") {
		t.Errorf("help: %s", out)
	}
	if entries, err := filepath.Glob(filepath.Dir(b.socket) + "/*"); err != nil || len(entries) > 0 {
		t.Errorf("await started a daemon: %v", entries)
	}
}

// A signal ends the wait, and what exec: runs.
func TestAwaitEndsBySignal(t *testing.T) {
	b := newBench(t)
	m := mark(b)
	cmd := b.command("await", "exec:sleep 1000 & sleep 1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.has(t, "sleep 1000")
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 128+15 {
		t.Errorf("%v", cmd.ProcessState)
	}
	m.none(t)
}

// A marked is everything that has a variable in its environment.
type marked string

func mark(b *bench) marked {
	m := marked(fmt.Sprintf("PROCSUP_TEST_MARK=%d.%d", os.Getpid(), rand.Uint64()))
	b.env = append(b.env, string(m))
	return m
}

func (m marked) processes() (lines []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range all {
		env, err := os.ReadFile(f)
		if err != nil || !strings.Contains("\x00"+string(env), "\x00"+string(m)+"\x00") {
			continue
		}
		line, _ := os.ReadFile(filepath.Dir(f) + "/cmdline")
		lines = append(lines, filepath.Base(filepath.Dir(f))+" "+strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")))
	}
	return lines
}

// until looks until it is so: processes of others tell nobody that they came or went.
func (m marked) until(t *testing.T, what string, ok func(string) bool) {
	t.Helper()
	for limit := time.Now().Add(long / 2); ; time.Sleep(2 * time.Millisecond) {
		have := m.processes()
		if ok(strings.Join(have, "\n")) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s: there is %q", what, have)
		}
	}
}

// has waits for a process with exactly this command line: that of procsup
// itself has it in it, too.
func (m marked) has(t *testing.T, text string) {
	t.Helper()
	m.until(t, "no "+text, func(s string) bool {
		for line := range strings.SplitSeq(s, "\n") {
			if _, command, _ := strings.Cut(line, " "); command == text {
				return true
			}
		}
		return false
	})
}

func (m marked) none(t *testing.T) {
	t.Helper()
	m.until(t, "left", func(s string) bool { return s == "" })
}

// The client's own end is the end; of the server nothing is left.
func TestWith(t *testing.T) {
	b := newBench(t)
	m := mark(b)
	for name, tc := range map[string]struct {
		server, client string
		code           int
		out, err       string
	}{
		"exit code":      {"echo up; exec sleep 600", "echo hello; exit 7", 7, "hello\n", ""},
		"stdin":          {"echo up; exec sleep 600", "cat", 0, "typed\n", ""},
		"tree":           {"echo up; sleep 600 & setsid sleep 600 & sleep 600", "true", 0, "", ""},
		"aborted":        {"echo no; exec sleep 600", "echo never", exitNoMatch, "", "not ready within 300ms: output:up (it was not written)\nits last output:\n  no\n"},
		"ends before":    {"echo no; exit 3", "echo never", exitNoMatch, "", "is failed, exit 3 and was never ready"},
		"ends meanwhile": {"echo up; exec sleep 0.3", "exec sleep 600", exitNoMatch, "", "the server sh is completed, exit 0: ended sh by TERM"},
		"stubborn":       {"trap '' TERM; echo up; while :; do sleep 0.1; done", "exit 4", 4, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			r := b.runIn("typed\n", "with", "--ready", "output:up", "--ready-timeout", map[bool]string{true: "300ms", false: "20s"}[name == "aborted"], "--grace", "200ms",
				"--", "sh", "-c", tc.server, "--then", "--", "sh", "-c", tc.client)
			if r.code != tc.code || r.out != tc.out || !strings.Contains(r.err, tc.err) || tc.err == "" && r.err != "" {
				t.Errorf("%+v", r)
			}
			m.none(t)
		})
	}
	b.t = t
	b.want(exitNotFound, "with", "--ready", "notify", "--", "true", "--then", "no-such-command")
	b.want(exitNotFound, "with", "--ready", "notify", "--", "no-such-command", "--then", "true")
	if out := b.want(0, "with", "--ready", "output:up", "sh", "-c", "echo up; exec sleep 600", "--then", "sh", "-c", "procsup show --json $PROCSUP_SERVER"); !strings.Contains(out, `"state":"ready"`) {
		t.Errorf("the client does not know its server: %s", out)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} { // in front, and while it waits
		for _, server := range []string{"echo up; exec sleep 601", "exec sleep 601"} {
			cmd := b.command("with", "--ready", "output:up", "--", "sh", "-c", server, "--then", "sleep", "602")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			m.has(t, map[bool]string{true: "sleep 602", false: "sleep 601"}[strings.HasPrefix(server, "echo")])
			_ = cmd.Process.Signal(sig)
			_ = cmd.Wait()
			if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != sig {
				t.Errorf("%v: %v", sig, cmd.ProcessState)
			}
			m.none(t)
		}
	}
}

// S2-31: however `with` dies, in whatever phase, it leaves nothing.
func TestS2_31_WithIsKilled(t *testing.T) {
	b := newBench(t)
	b.want(0, "list") // the daemon is up
	b.want(0, "wait", b.start("true"))
	m := mark(b)
	for _, phase := range []struct{ server, client, at string }{
		{"exec sleep 601", "sleep 602", "sleep 601"},          // waits for the server
		{"echo up; exec sleep 601", "sleep 602", "sleep 602"}, // the client runs
		{"trap 'echo >>down' TERM; echo up; while :; do sleep 0.1; done", "true", "down"},
	} {
		dir := t.TempDir()
		cmd := b.command("with", "--dir", dir, "--ready", "output:up", "--grace", "1s", "--", "sh", "-c", phase.server, "--then", "sh", "-c", phase.client)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if phase.at == "down" { // the server is being ended
			b.want(0, "await", "file:"+filepath.Join(dir, "down"), "--timeout", "20s")
		} else {
			m.has(t, phase.at)
		}
		if phase.at == "sleep 602" { // the guard of the client is there just after it
			m.until(t, "no guard", func(string) bool {
				return slices.ContainsFunc(platform.Children(cmd.Process.Pid), func(pid int) bool {
					return strings.HasPrefix(platform.CommandLine(pid, 0), "procsup "+guardVerb)
				})
			})
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		m.none(t)
	}
	for range 8 {
		cmd := b.command("with", "--ready", "output:up", "--", "sh", "-c", "echo up; exec sleep 601", "--then", "sleep", "0.2") // which the guard may come too late for
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		moment := time.NewTimer(time.Duration(rand.IntN(40)) * time.Millisecond) // the moment is what is random, nothing is waited for
		<-moment.C
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		m.none(t)
	}
	if out := b.want(0, "list"); out != "" {
		t.Errorf("left: %s", out)
	}
}

// S2-31: a script whose session is bound to it leaves nothing, however it dies.
func TestS2_31_BoundScriptIsKilled(t *testing.T) {
	b := newBench(t)
	b.want(0, "list") // the daemon is up
	m := mark(b)
	c := b.client()
	defer c.Close()
	const script = `eval "$(procsup session open --bind-pid $$ --shell)"
echo $PROCSUP_SESSION begin
h=$(procsup start --ready output:up --ready-timeout 20s -- sh -c 'sleep 0.05; echo up; sleep 601')
echo started; trap 'procsup cancel $h >/dev/null' EXIT
procsup wait-ready $h; echo ready
sleep 602`
	for _, phase := range []string{"open", "begin", "started", "ready", "random", "random", "random"} {
		cmd := b.command()
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := ""
		until := map[string]string{"open": "", "random": "begin"}
		if _, ok := until[phase]; !ok {
			until[phase] = phase
		}
		for buf := make([]byte, 64); !strings.Contains(said, until[phase]); {
			n, err := out.Read(buf)
			if err != nil {
				t.Fatalf("%s: %q, %v", phase, said, err)
			}
			said += string(buf[:n])
		}
		if phase == "random" || phase == "open" {
			moment := time.NewTimer(time.Duration(rand.IntN(100)) * time.Millisecond) // the moment is what is random, nothing is waited for
			<-moment.C
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		// What is left is an orphan of the shell that was killed: sleep 602, or a verb that ends by itself.
		m.until(t, phase, func(s string) bool { return !strings.Contains(s, "sleep 601") })
		for _, line := range m.processes() {
			pid, _ := strconv.Atoi(strings.Fields(line)[0])
			_ = syscall.Kill(pid, syscall.SIGKILL) // by the mark: ours alone
		}
		m.none(t)
		if phase == "open" {
			continue
		}
		name, _, _ := strings.Cut(said, " ")
		for limit := time.Now().Add(long / 2); ; {
			s, err := c.ShowSession(t.Context(), name)
			if err != nil || time.Now().After(limit) {
				t.Fatalf("%s: %+v, %v", phase, s, err)
			}
			if s.Status == handles.SessionClosed && s.Live == 0 {
				break
			}
		}
	}
	if out := b.want(0, "list"); out != "" {
		t.Errorf("left: %s", out)
	}
}
