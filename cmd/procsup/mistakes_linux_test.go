package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// --help is help wherever it stands before --, also behind an argument.
func TestHelpBehindArguments(t *testing.T) {
	b := newBench(t)
	for _, args := range [][]string{{"wait", "foo", "--help"}, {"journal", "check", "-h"}, {"session", "close", "foo", "--help"}, {"logs", "--tail", "3", "foo", "--help"}} {
		if out := b.want(0, args...); !strings.Contains(out, "Examples:") || !strings.Contains(out, "procsup "+args[0]) {
			t.Errorf("%q: %s", args, out)
		}
	}
	if out := b.want(0, "run", "--", "sh", "-c", "echo $1", "sh", "--help"); out != "--help" {
		t.Errorf("behind --: %q", out)
	}
}

// A session that was mistyped is not an empty one; a flag is called as it is.
func TestMistyped(t *testing.T) {
	b := newBench(t)
	b.want(0, "list")
	b.want(66, "list", "-S", "nosuch")
	for want, args := range map[string][]string{
		"start: --kind: ":           {"start", "--kind", "foo", "--", "true"},
		"start: --watchdog: ":       {"start", "--watchdog", "3s", "--", "true"},
		"open: --bind-pid: process": {"session", "open", "--bind-pid", "999999999"},
	} {
		if r := b.run(args...); r.code != 64 || !strings.Contains(r.err, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// The overflow uid is refused by the verb that needs a daemon, at once.
func TestOverflowUserIsToldSo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	b := newBench(t)
	dir := filepath.Dir(b.socket)
	if err := errors.Join(os.Chmod(dir, 0o777), os.Chmod(b.bin, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := b.command("start", "--", "true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is the overflow uid") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(b.state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a daemon was begun: %v", err)
	}
}
