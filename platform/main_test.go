package platform

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv names the helper that the test binary is to be, with its arguments
// after blanks.
const helperEnv = "PLATFORM_TEST_HELPER"

func TestMain(m *testing.M) {
	if line := os.Getenv(helperEnv); line != "" {
		f := strings.Fields(line)
		helper, ok := helpers[f[0]]
		if !ok {
			fmt.Fprintln(os.Stderr, "no such helper:", line)
			os.Exit(99)
		}
		os.Exit(helper(f[1:]))
	}
	before := leftovers()
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if after := leftovers(); after != before {
		fmt.Fprintf(os.Stderr, "left behind:\n%s\nbefore:\n%s\n", after, before)
		code = 1
	}
	os.Exit(code)
}

// helperCmd is the test binary as a helper that is not started yet.
func helperCmd(t testing.TB, line string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), helperEnv+"="+line, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// startReady starts cmd and returns the first line it says. Cleanup closes its
// stdin, kills and reaps it.
func startReady(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("%s said %q: %v", cmd.Env[len(cmd.Env)-2], line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// hang waits until the parent is gone or closes stdin, so that no helper
// outlives a killed test.
func hang([]string) int {
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	return 0
}
