//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// TestServers runs testdata/servers/*.txt: servers as Debian has them, under a
// daemon of its own for each script. Once, as whoever we are, at the default
// level and at the one that most machines have.
func TestServers(t *testing.T) {
	if os.Getenv(envBin) != "" || os.Getenv(envUnder) != "" {
		t.Log("servers run once, with procsupd as built here")
		return
	}
	buildDaemon(t)
	findServers()
	for _, level := range []string{"auto", "tree"} {
		t.Run(level, func(t *testing.T) {
			p := scriptParams("testdata/servers", level)
			script := p.Setup
			p.Setup = func(e *testscript.Env) error { return errors.Join(script(e), setupDaemon(e)) }
			for name, f := range map[string]func(*testscript.TestScript, bool, []string){
				"begin": cmdBegin, "family": cmdFamily, "nobody": cmdNobody, "refused": cmdRefused, "matched": cmdMatched, "killdaemon": cmdKillDaemon,
			} {
				p.Cmds[name] = f
			}
			testscript.Run(t, p)
		})
	}
}

func buildDaemon(t *testing.T) {
	t.Helper()
	args := []string{"build", "-tags", "urfave_cli_no_docs", "-o", filepath.Join(binDir, "procsupd")}
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "procsup/cmd/procsupd")...).CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
}

// findServers adds where Debian puts servers to PATH.
func findServers() {
	path := []string{os.Getenv("PATH"), "/usr/sbin"}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	os.Setenv("PATH", strings.Join(append(path, found...), string(os.PathListSeparator)))
}

// setupDaemon gives a script a state directory and a socket of its own, and
// $RUN: a short path, for sockets, that other users can enter. It ends the daemon
// when the script is over.
func setupDaemon(e *testscript.Env) error {
	run, err := os.MkdirTemp("", "ps")
	if err != nil {
		return err
	}
	e.Defer(func() { os.RemoveAll(run) })
	if err := os.Chmod(run, 0o711); err != nil {
		return err
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env GOCACHE: %w", err)
	}
	e.Setenv("RUN", run)
	e.Setenv("PROCSUP_SOCKET", filepath.Join(run, "s", "sock"))
	e.Setenv("PROCSUP_STATE", filepath.Join(run, "state"))
	e.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	e.Defer(func() { // before the folder goes, and before what is left is looked for
		stop := exec.Command("procsup", "daemon", "--stop")
		stop.Env = e.Vars
		out, err := stop.CombinedOutput()
		e.T().Log(fmt.Sprintf("daemon --stop: %v %s", err, out))
	})
	return nil
}

// cmdBegin starts a handle and puts its id into a variable: begin VAR ARG… of
// procsup start.
func cmdBegin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: begin VAR ARG...")
	}
	id := procsup(ts, append([]string{"start", "--containment=" + ts.Getenv("LEVEL")}, args[1:]...)...)
	ts.Setenv(args[0], strings.TrimSpace(id))
}

// procsup runs it and gives its output: no holder of that can keep it open for
// longer than a test may take.
func procsup(ts *testscript.TestScript, args ...string) string {
	cmd := buildCmd(ts, append([]string{"procsup"}, args...))
	defer cmd.Stdin.(*os.File).Close()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &said, patience
	ts.Check(cmd.Start())
	end := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer end.Stop()
	err := cmd.Wait()
	ts.Logf("%s%s", out.Bytes(), said.Bytes())
	if err != nil {
		ts.Fatalf("procsup %q: %v", args, err)
	}
	return out.String()
}

// cmdMatched puts what the first group of an expression matches in the output of
// the last command into a variable: matched VAR REGEXP.
func cmdMatched(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: matched VAR REGEXP")
	}
	m := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) != 2 {
		ts.Fatalf("%s does not match %q", args[1], ts.ReadFile("stdout"))
	}
	ts.Setenv(args[0], m[1])
}

// cmdFamily writes the numbers of a process and of all below it to a file, for
// gone: family FILE HANDLE|PIDFILE [N]. Servers write their titles over their
// environment, so no mark tells their processes. With N, so many must be there.
func cmdFamily(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: family FILE HANDLE|PIDFILE [N]")
	}
	var text bytes.Buffer
	all := []int{leaderOf(ts, args[1])}
	for i := 0; i < len(all); i++ {
		all = append(all, childrenOf(all[i])...)
		fmt.Fprintf(&text, "%d %s\n", all[i], commandOf(all[i]))
	}
	ts.Logf("%s", text.Bytes())
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), text.Bytes(), 0o644))
	if len(args) == 3 && fmt.Sprint(len(all)) != args[2] {
		ts.Fatalf("%d processes, want %s", len(all), args[2])
	}
}

func leaderOf(ts *testscript.TestScript, who string) int {
	if !strings.HasPrefix(who, "hto-") {
		return pidsOf(ts, who)[0]
	}
	var rec struct{ PID int }
	ts.Check(json.Unmarshal([]byte(procsup(ts, "show", "--json", who)), &rec))
	return rec.PID
}

func childrenOf(pid int) []int {
	var found []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		b, _ := os.ReadFile(path)
		if list, err := pidsIn(bytes.ReplaceAll(b, []byte(" "), []byte("\n"))); err == nil {
			found = append(found, list...)
		}
	}
	return found
}

// cmdNobody checks that at this moment no process has the script's mark in its
// environment.
func cmdNobody(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: nobody")
	}
	for _, pid := range marked("PROCSUP_TEST_MARK=" + ts.Getenv("PROCSUP_TEST_MARK")) {
		ts.Fatalf("%d (%s) is there", pid, commandOf(pid))
	}
}

// cmdRefused checks that nobody listens: refused unix|tcp ADDRESS.
func cmdRefused(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: refused unix|tcp ADDRESS")
	}
	c, err := net.DialTimeout(args[0], args[1], 5*time.Second)
	if err == nil {
		c.Close()
		ts.Fatalf("somebody listens at %s", args[1])
	}
	if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
		ts.Fatalf("%v, want that nobody listens", err)
	}
}

// cmdKillDaemon kills the supervisor, or both processes of the daemon at one
// moment: killdaemon supervisor|both.
func cmdKillDaemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: killdaemon supervisor|both")
	}
	var supervisor, keeper int
	status := procsup(ts, "daemon", "--status")
	if _, err := fmt.Sscanf(status, "supervisor %d, keeper %d,", &supervisor, &keeper); err != nil {
		ts.Fatalf("%q: %v", status, err)
	}
	if args[0] == "both" {
		// Stopped first: neither sees the other die and succeeds it.
		ts.Check(unix.Kill(supervisor, unix.SIGSTOP))
		ts.Check(unix.Kill(keeper, unix.SIGKILL))
	}
	ts.Check(unix.Kill(supervisor, unix.SIGKILL))
	if !waitGone(supervisor, patience) || args[0] == "both" && !waitGone(keeper, patience) {
		ts.Fatalf("the daemon does not die")
	}
}
