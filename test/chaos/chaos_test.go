//go:build linux

package chaos

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/test/nest"
	"procsup/test/say"
)

var rounds = flag.Int("rounds", 5, "`kills` of each kind")

var procsup, procsupd string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "say" {
		os.Exit(say.Main(os.Args[2:]))
	}
	if socket := os.Getenv(readerEnv); socket != "" {
		os.Exit(readerMain(socket))
	}
	flag.Parse()
	os.Exit(mainCode(m))
}

// room is where procsup makes its cgroups.
var room *nest.Nest

func mainCode(m *testing.M) int {
	room = nest.Enter()
	defer room.Leave()
	// What is orphaned comes to us, so that nothing is reaped behind our back.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "procsup-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	procsup = os.Getenv("PROCSUP_UNDER_TEST")
	procsupd = filepath.Join(dir, "procsupd")
	if out, err := exec.Command("go", "build", "-o", procsupd, "procsup/cmd/procsupd").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	if procsup == "" {
		procsup = filepath.Join(dir, "procsup")
		cmd := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-o", procsup, "procsup/cmd/procsup")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

// tree is a command with members of every kind. Every pid goes to the file all.
const tree = `
cd "$1"
sh -c 'echo $$ >>all; exec sleep 701' &
setsid sh -c 'echo $$ >>all; exec sleep 702' &
setsid env -i sh -c 'echo $$ >>all; exec sleep 703' &
(setsid sh -c 'trap "" TERM; echo $$ >>all; while :; do sleep .2; done' &)
sh -c 'echo $$ >>all; kill -STOP $$; exec sleep 704' &
echo $$ >>all
while :; do sleep .05; done
`

// inGroup is the same without those who leave the group.
const inGroup = `
cd "$1"
sh -c 'echo $$ >>all; exec sleep 701' &
sh -c 'trap "" TERM; echo $$ >>all; while :; do sleep .2; done' &
sh -c 'echo $$ >>all; kill -STOP $$; exec sleep 704' &
echo $$ >>all
while :; do sleep .05; done
`

// A run is one procsup with a tree under it.
type run struct {
	cmd    *exec.Cmd
	dir    string
	want   int // members
	level  string
	others []string // cgroups that were there before: of a daemon that was killed with its keeper, say
}

func start(t *testing.T, level string, flags ...string) *run {
	t.Helper()
	r := &run{dir: t.TempDir(), level: level, want: 6, others: room.Left()}
	script := tree
	if level == "group" {
		script, r.want = inGroup, 4
	}
	args := append([]string{"run", "--containment", level, "--grace", "300ms"}, flags...)
	r.cmd = exec.Command(procsup, append(args, "--", "sh", "-c", script, "sh", r.dir)...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.end(t) })
	return r
}

// members are the pids that the tree has written.
func (r *run) members() (pids []int) {
	text, _ := os.ReadFile(filepath.Join(r.dir, "all"))
	for _, f := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// guard is the pid of the guard once it is up: a child of run that leads a
// session of its own and has made itself known by its name.
func (r *run) guard() int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.cmd.Process.Pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, f := range strings.Fields(string(text)) {
			line, _ := os.ReadFile("/proc/" + f + "/cmdline")
			pid, _ := strconv.Atoi(f)
			if sid, err := unix.Getsid(pid); err == nil && sid == pid && bytes.Contains(line, []byte("guard")) {
				return pid
			}
		}
	}
	return 0
}

func (r *run) up(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); len(r.members()) < r.want || r.guard() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d members, guard %d", len(r.members()), r.want, r.guard())
		}
	}
}

// gone fails unless the whole tree ends in the time, and no cgroup stays.
func (r *run) gone(t *testing.T, within time.Duration) {
	t.Helper()
	end := time.Now().Add(within)
	for _, pid := range r.members() {
		if !waitGone(pid, time.Until(end)) {
			t.Errorf("%s: %d (%s) is left", r.level, pid, commandOf(pid))
		}
	}
	for left := r.left(); len(left) > 0; left = r.left() {
		if time.Now().After(end.Add(time.Second)) {
			t.Errorf("%s: cgroups are left: %v", r.level, left)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// left are the cgroups that came since the run was started.
func (r *run) left() []string {
	return slices.DeleteFunc(room.Left(), func(dir string) bool { return slices.Contains(r.others, dir) })
}

func (r *run) end(t *testing.T) {
	r.cmd.Process.Kill()
	r.cmd.Wait()
	for _, pid := range r.members() {
		if alive(pid) {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
}

var kinds = [][]string{{"auto"}, {"tree"}, {"group"}, {"auto", "--json"}, {"tree", "--capture", "log"}}

// G9: procsup run is killed with KILL at a random moment of its tree's life:
// the guard ends the tree.
func TestRunIsKilled(t *testing.T) {
	for i := range *rounds {
		kind := kinds[i%len(kinds)]
		t.Run(fmt.Sprint(i, kind), func(t *testing.T) {
			t.Chdir(t.TempDir())
			r := start(t, kind[0], kind[1:]...)
			r.up(t)
			time.Sleep(rand.N(200 * time.Millisecond))
			r.cmd.Process.Kill()
			r.gone(t, 5*time.Second)
		})
	}
}

// The guard is killed: run does its work without it.
func TestGuardIsKilled(t *testing.T) {
	for i := range *rounds {
		kind := kinds[i%len(kinds)]
		t.Run(fmt.Sprint(i, kind), func(t *testing.T) {
			t.Chdir(t.TempDir())
			r := start(t, kind[0], kind[1:]...)
			r.up(t)
			unix.Kill(r.guard(), unix.SIGKILL)
			time.Sleep(rand.N(50 * time.Millisecond))
			r.cmd.Process.Signal(syscall.SIGTERM)
			r.gone(t, 5*time.Second)
		})
	}
}

// Killed before anything was up: the window is known (design: the guard starts
// after the command). What it leaves is counted and ended, not judged.
func TestWindowBeforeTheGuard(t *testing.T) {
	left := 0
	for range *rounds {
		r := start(t, "tree")
		for end := time.Now().Add(time.Second); len(r.members()) == 0 && time.Now().Before(end); {
			time.Sleep(50 * time.Microsecond)
		}
		r.cmd.Process.Kill()
		for _, pid := range r.members() {
			if !waitGone(pid, 2*time.Second) {
				left++
				break
			}
		}
		r.end(t)
	}
	t.Logf("%d of %d trees outlived a KILL sent as soon as the first member ran", left, *rounds)
}
