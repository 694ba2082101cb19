package platform

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// executing is a process that executes one program after the other.
func executing(t *testing.T, shell string) (pid int) {
	t.Helper()
	cmd := exec.Command(shell, "-c", `exec "$1" -c "$0" "$0" "$1"`, `exec "$1" -c "$0" "$0" "$1"`, shell)
	cmd.Env = []string{"A=1", "MARKED=yes"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// A process shows its environment at each moment: what it belongs to is never in
// doubt (fault A6).
func TestA6_EnvironWhileExecuting(t *testing.T) {
	pid := executing(t, "/bin/sh")
	for n := range 20_000 {
		if v, ok, err := Environ(pid, "MARKED"); err != nil || !ok || v != "yes" {
			t.Fatalf("look %d: %q, %v, %v", n, v, ok, err)
		}
	}
}

// A supervisor that executes itself to be the keeper is one at each moment: a
// client waits for it (S4-06).
func TestRunsProcsupWhileExecuting(t *testing.T) {
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	shell := filepath.Join(t.TempDir(), "procsup-sh")
	if err := os.Link(sh, shell); err != nil {
		if err := os.Symlink(sh, shell); err != nil {
			t.Fatal(err)
		}
	}
	pid := executing(t, shell)
	for n := range 20_000 {
		if !RunsProcsup(pid) {
			t.Fatalf("look %d: it runs %q", n, CommandLine(pid, 0))
		}
	}
	if RunsProcsup(os.Getpid()) || RunsProcsup(1<<22+1) {
		t.Error("a test runs procsup, or nobody does")
	}
}
