//go:build linux

package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

func TestPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 340 * time.Millisecond: "340ms", 999600 * time.Microsecond: "1s", 1540 * time.Millisecond: "1.5s", 12400 * time.Millisecond: "12s",
		200 * time.Second: "3m20s", 59*time.Minute + 59600*time.Millisecond: "60m0s", 125 * time.Minute: "2h5m", 76 * time.Hour: "3d4h",
	} {
		if got := people(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// onTerminal runs procsup with its output on a terminal and returns what that
// showed.
func (b *bench) onTerminal(args ...string) (string, int) {
	b.t.Helper()
	cmd := b.command(args...)
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=")
	f, err := pty.Start(cmd)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	var shown bytes.Buffer
	_, _ = io.Copy(&shown, f) // ends with EIO
	_ = cmd.Wait()
	return shown.String(), cmd.ProcessState.ExitCode()
}

// A list has colours on a terminal, and only there; a long wait says so there,
// and leaves nothing behind.
func TestTerminal(t *testing.T) {
	b := newBench(t)
	done := b.start("--", "sh", "-c", "exit 3")
	b.want(3, "wait", done)
	if out := b.want(0, "list", "--all"); strings.Contains(out, "\x1b") {
		t.Errorf("colours in a pipe: %q", out)
	}
	shown, _ := b.onTerminal("list", "--all")
	if !strings.Contains(shown, "\x1b[31mfailed\x1b[0m") {
		t.Errorf("no colours on a terminal: %q", shown)
	}
	lines := strings.Split(regexp.MustCompile(`\x1b\[\d+m`).ReplaceAllString(shown, ""), "\r\n")
	if at := strings.Index(lines[0], "EXIT"); at < 0 || !strings.HasPrefix(lines[1][at:], "3 ") {
		t.Errorf("the columns are not aligned:\n%s", shown)
	}
	slow := b.start("--", "sleep", "1.5")
	shown, code := b.onTerminal("wait", slow)
	if code != 0 || !strings.Contains(shown, "waiting for "+slow) || !strings.HasSuffix(shown, clearLine) {
		t.Errorf("a long wait: exit %d, %q", code, shown)
	}
	if r := b.run("wait", slow); r.err != "" {
		t.Errorf("a wait without a terminal says %q", r.err)
	}
}
