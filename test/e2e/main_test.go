//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"procsup/test/nest"
)

// The environment by which the test process tells its copy that runs as
// another user what was built already.
const (
	envBin   = "PROCSUP_E2E_BIN"    // folder with procsup
	envUnder = "PROCSUP_UNDER_TEST" // another binary to test in procsup's place
)

var (
	binDir    string // holds procsup; first in every script's PATH
	levelAuto string // what --containment auto comes to here
)

func TestMain(m *testing.M) {
	flag.Parse()
	if !isSet("test.parallel") {
		flag.Set("test.parallel", "4") // scripts wait far more than they work
	}
	os.Exit(mainCode(m))
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

func mainCode(m *testing.M) (code int) {
	room := nest.Enter()
	defer func() {
		if left := room.Leave(); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "cgroups left behind: %v\n", left)
			code = 1
		}
	}()
	// Orphans of a run come to us instead of to PID 1, so that what a script
	// left behind can be seen. prctl(2).
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "subreaper:", err)
		return 1
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGQUIT} { // a shell starts `go test &` with them ignored
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // what we start has the default again
		}
	}
	if binDir = os.Getenv(envBin); binDir == "" {
		dir, err := os.MkdirTemp("", "procsup-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		binDir = dir
	}
	os.Setenv("PATH", binDir+string(os.PathListSeparator)+os.Getenv("PATH"))
	var err error
	if levelAuto, err = levelInForce(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	if left := adopted(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "left behind after all tests: %v\n", left)
		return 1
	}
	return code
}

// build puts procsup into dir, race-built when we are.
func build(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	target := filepath.Join(dir, "procsup")
	if other := os.Getenv(envUnder); other != "" {
		data, err := os.ReadFile(other)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o755)
	}
	args := []string{"build", "-tags", "urfave_cli_no_docs", "-o", target}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "procsup/cmd/procsup")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", cmd.Args[1:], err, out)
	}
	return nil
}

// levelInForce asks a run's record which level of containment auto means here.
func levelInForce() (string, error) {
	cmd := exec.Command("procsup", "run", "--json", "--", "true")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, stderr.String())
	}
	var record struct{ Containment string }
	if err := json.Unmarshal(out, &record); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	if record.Containment == "" && os.Getenv(envUnder) != "" {
		return "group", nil
	}
	switch record.Containment {
	case "cgroup", "tree", "group":
		return record.Containment, nil
	}
	return "", fmt.Errorf("containment in force is %q", record.Containment)
}

// nobody is the user as whom everything runs again.
const nobody = 65534

// TestAsNobody runs every test of this package again as another user, in a
// copy of this process that has its own HOME and TMPDIR.
func TestAsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Logf("we are uid %d: the other tests ran as another user than root already", os.Geteuid())
		return
	}
	dir, err := os.MkdirTemp("", "procsup-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "e2e.test")
	tmp := filepath.Join(dir, "tmp")
	for _, err := range []error{
		os.Chmod(dir, 0o755),
		os.WriteFile(exe, self, 0o755),
		os.CopyFS(filepath.Join(dir, "testdata"), os.DirFS("testdata")),
		os.Mkdir(tmp, 0o700), os.Chown(tmp, nobody, nobody),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-test.v"}
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "test.timeout", "test.parallel", "test.short", "test.run":
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), envBin+"="+binDir, "HOME="+tmp, "TMPDIR="+tmp, "GOTMPDIR="+tmp, "USER=nobody", "LOGNAME=nobody", "XDG_RUNTIME_DIR=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	passed, failed := bytes.Count(out, []byte("--- PASS")), bytes.Count(out, []byte("--- FAIL"))
	t.Logf("as uid %d: %d passed, %d failed, %d skipped", nobody, passed, failed, bytes.Count(out, []byte("--- SKIP")))
	if err != nil || passed == 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
