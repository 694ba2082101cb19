//go:build linux

package chaos

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// resident is the memory of a process in KiB that no file backs, proc(5).
func resident(t *testing.T, pid int) int {
	t.Helper()
	return statusField(t, pid, "RssAnon:")
}

func statusField(t *testing.T, pid int, field string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), field)
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Clients that follow output, notices and events and read none of it: nothing
// grows, the command is not held up, others get all of it.
func TestClientsThatNeverRead(t *testing.T) {
	b := besiege(t)
	const size, each = 64 << 20, 20
	script := fmt.Sprintf(`read x; head -c %d /dev/zero; read x; i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done`, size)
	a, err := b.Start(t.Context(), wire.Start{Command: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Session: "x", Lease: "service", Stdin: "pipe"})
	if err != nil {
		t.Fatal(err)
	}
	var deaf []net.Conn
	defer func() {
		for _, c := range deaf {
			c.Close()
		}
	}()
	for _, path := range []string{"/v1/handles/%s/output?follow=true", "/v1/handles/%s/events", "/v1/sessions/x/notices?since=1#%s"} {
		target, _, _ := strings.Cut(fmt.Sprintf(path, a.HandleID), "#")
		for range each {
			c, err := net.Dial("unix", b.socket())
			if err != nil {
				t.Fatal(err)
			}
			deaf = append(deaf, c)
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
			if _, err := io.ReadFull(c, make([]byte, 12)); err != nil { // it is attached, and hears no more
				t.Fatal(err)
			}
		}
	}
	before := resident(t, b.pid)
	send := func() {
		if _, err := b.Send(t.Context(), string(a.HandleID), []byte("\n"), false); err != nil {
			t.Fatal(err)
		}
	}
	send()
	for i := range 300 { // more notices than are kept
		if _, err := b.Start(t.Context(), wire.Start{Command: []string{"/no/such"}, Session: "x", Lease: "service", Idempotency: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	send()
	w, err := b.Wait(t.Context(), string(a.HandleID), time.Minute)
	if err != nil || w.Record.Status != handles.Completed {
		t.Fatalf("the command: %+v, %v", w, err)
	}
	if n := w.Record.Output.Stdout.Bytes; n < size {
		t.Errorf("%d bytes were captured", n)
	}
	if grown := resident(t, b.pid) - before; grown > 40<<10 {
		t.Errorf("%d KiB more memory with %d clients that do not read", grown, len(deaf))
	} else {
		t.Logf("%d KiB more memory, of %d", grown, before)
	}
	text, err := b.talk(fmt.Sprintf("GET /v1/handles/%s/output?from=-10 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", a.HandleID), false)
	if err != nil || !strings.Contains(text, "2999") {
		t.Errorf("who reads gets %.200q, %v", text, err)
	}
	for _, c := range deaf {
		c.Close()
	}
	deaf = nil
	b.over(t)
}

// Another user is refused, whatever the modes of the socket allow, and holds
// nothing afterwards.
func TestAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	b := besiege(t)
	for path, mode := range map[string]os.FileMode{b.dir: 0o755, b.socket(): 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	script := `for i in 1 2 3 4 5; do for p in hello handles sessions/x/take; do curl -s -d '{}' -X POST --unix-socket "$0" http://x/v1/$p; echo; done; curl -s --unix-socket "$0" http://x/v1/hello; echo; done`
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script, b.socket())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if n := bytes.Count(out, []byte(`"not_authorized"`)); err != nil || n != 20 {
		t.Errorf("%d of 20 were refused, %v:\n%s", n, err, out)
	}
	b.over(t)
}
