//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/client"
)

// built makes both binaries once, in a folder that TestMain removes.
var built = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "procsup-verbs-"); err != nil {
		return "", err
	}
	for _, name := range []string{"procsup", "procsupd"} {
		cmd := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-o", filepath.Join(dir, name), "procsup/cmd/"+name)
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir := os.Getenv("PROCSUP_TEST_BIN"); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// A bench is a socket and a state directory of its own for the verbs, with no
// daemon so far. Its Cleanup ends the one that was started.
type bench struct {
	t             testing.TB
	bin           string
	socket, state string
	env           []string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	bin, err := built()
	os.Setenv("PROCSUP_TEST_BIN", bin)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pv") // a short path: sockets need one
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, bin: bin, socket: filepath.Join(dir, "sock"), state: filepath.Join(dir, "state")}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PROCSUP_") && !strings.HasPrefix(kv, "PATH=") {
			b.env = append(b.env, kv)
		}
	}
	b.env = append(b.env, "PATH="+bin+":"+os.Getenv("PATH"), "PROCSUP_SOCKET="+b.socket, "PROCSUP_STATE="+b.state)
	t.Cleanup(func() {
		c := b.client()
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		if err := c.Shutdown(ctx); err != nil && !errors.Is(err, client.ErrNoDaemon) {
			t.Errorf("end the daemon: %v", err)
		}
		os.RemoveAll(dir)
	})
	return b
}

const long = time.Minute

func (b *bench) client() *client.Client {
	return client.New(client.Config{Socket: b.socket, State: b.state})
}

// A result is how a verb ended.
type result struct {
	out, err string
	code     int
}

// command is procsup with the bench's environment; it is killed after long.
func (b *bench) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), long)
	b.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "procsup"), args...)
	cmd.Env = b.env
	return cmd
}

func (b *bench) runIn(stdin string, args ...string) result {
	b.t.Helper()
	cmd := b.command(args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		b.t.Fatalf("procsup %q: %v", args, err)
	}
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

func (b *bench) run(args ...string) result { b.t.Helper(); return b.runIn("", args...) }

// want runs a verb that has to end with a code, and returns what it wrote.
func (b *bench) want(code int, args ...string) string {
	b.t.Helper()
	r := b.run(args...)
	if r.code != code {
		b.t.Errorf("procsup %q: exit %d, want %d\n%s%s", args, r.code, code, r.out, r.err)
	}
	if code != 0 && r.err == "" && args[0] != "wait" {
		b.t.Errorf("procsup %q: exit %d without a word", args, code)
	}
	return strings.TrimSuffix(r.out, "\n")
}

// start starts a command and returns the handle.
func (b *bench) start(args ...string) string {
	b.t.Helper()
	h := b.want(0, append([]string{"start"}, args...)...)
	if !strings.HasPrefix(h, handles.CommandPrefix) || strings.ContainsAny(h, "\n ") {
		b.t.Fatalf("procsup start %q printed %q, not a bare handle id", args, h)
	}
	return h
}

// show is the record of a handle.
func (b *bench) show(h string) *handles.Record {
	b.t.Helper()
	var rec handles.Record
	if out := b.want(0, "show", h, "--json"); json.Unmarshal([]byte(out), &rec) != nil {
		b.t.Fatalf("show %s: %s", h, out)
	}
	return &rec
}

// eof waits until nobody holds the other end of a pipe open.
func eof(t testing.TB, r *os.File) {
	t.Helper()
	_ = r.SetReadDeadline(time.Now().Add(10 * time.Second))
	if b, err := io.ReadAll(r); err != nil {
		t.Errorf("the pipe stays open (%q, %v): somebody inherited it", b, err)
	}
}
