package platform

import (
	"os/exec"
	"testing"
)

// A process that executes one program after the other shows its environment at
// each moment: what it belongs to is never in doubt (fault A6).
func TestA6_EnvironWhileExecuting(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", `exec /bin/sh -c "$0" "$0"`, `exec /bin/sh -c "$0" "$0"`)
	cmd.Env = []string{"A=1", "MARKED=yes"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for n := range 20_000 {
		if v, ok, err := Environ(cmd.Process.Pid, "MARKED"); err != nil || !ok || v != "yes" {
			t.Fatalf("look %d: %q, %v, %v", n, v, ok, err)
		}
	}
}
