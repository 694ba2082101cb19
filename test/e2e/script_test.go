//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// patience is how long a script waits for what must come. It bounds a hang and
// is never waited out when things are right.
const patience = 30 * time.Second

// TestScripts runs testdata/*.txt at each containment level, as whoever we are.
func TestScripts(t *testing.T) {
	for _, level := range []string{"auto", "tree", "group"} {
		t.Run(level, func(t *testing.T) { runScripts(t, "testdata", level) })
	}
}

var scripts atomic.Int64

func runScripts(t *testing.T, dir, level string) { testscript.Run(t, scriptParams(dir, level)) }

func scriptParams(dir, level string) testscript.Params {
	inForce := level
	if level == "auto" {
		inForce = levelAuto
	}
	return testscript.Params{
		Dir:                dir,
		RequireUniqueNames: true,
		Setup:              func(e *testscript.Env) error { return setup(e, level) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"rc": cmdRC, "start": cmdStart, "send": cmdSend, "ended": cmdEnded,
			"await": cmdAwait, "alive": cmdAlive, "gone": cmdGone,
			"clock": cmdClock, "took": cmdTook, "json": cmdJSON, "lines": cmdLines, "size": cmdSize,
			"same": cmdSame, "text": cmdText, "atmost": cmdAtMost, "need": cmdNeed,
		},
		Condition: func(cond string) (bool, error) {
			if l, ok := strings.CutPrefix(cond, "level:"); ok {
				return l == inForce, nil
			}
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "race":
				return raceEnabled, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	}
}

// A stage is what our commands keep of one script.
type stage struct {
	running map[string]*process
	clock   time.Time
	t       testscript.T
}

type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it was waited for
}

func stageOf(ts *testscript.TestScript) *stage { return ts.Value("stage").(*stage) }

func setup(e *testscript.Env, level string) error {
	mark := fmt.Sprintf("PROCSUP_TEST_MARK=%d.%d.", os.Getpid(), scripts.Add(1))
	name, value, _ := strings.Cut(mark, "=")
	e.Setenv(name, value)
	e.Setenv("LEVEL", level)
	e.Setenv("HOME", e.WorkDir)
	e.Setenv("TMPDIR", filepath.Join(e.WorkDir, ".tmp"))
	s := &stage{running: map[string]*process{}, clock: time.Now(), t: e.T()}
	e.Values["stage"] = s
	e.Defer(func() { checkNothingLeft(s.t, s, mark) })
	return nil
}

// checkNothingLeft ends what a failed script left running and fails a script
// that passed but left something.
func checkNothingLeft(t testscript.T, s *stage, mark string) {
	for name, p := range s.running {
		t.Log("still running: " + name)
		p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(4 * time.Second):
			p.cmd.Process.Kill()
			<-p.done
		}
	}
	if left := leftBehind(mark, 3*time.Second); len(left) > 0 {
		t.Log(fmt.Sprintf("left behind: %v", left))
		t.FailNow()
	}
}

// buildCmd prepares a command line of a script. Flags before it: -in FILE,
// -in closed.
func buildCmd(ts *testscript.TestScript, args []string) *exec.Cmd {
	in := os.DevNull
	if len(args) > 2 && args[0] == "-in" {
		in, args = ts.MkAbs(args[1]), args[2:]
	}
	if len(args) == 0 {
		ts.Fatalf("no command")
	}
	path := args[0]
	if !strings.Contains(path, "/") {
		found, err := exec.LookPath(path)
		ts.Check(err)
		path = found
	}
	cmd := &exec.Cmd{Path: path, Args: args, Dir: ts.MkAbs(".")}
	for _, kv := range environ(ts) {
		cmd.Env = append(cmd.Env, kv)
	}
	f, err := os.Open(in)
	ts.Check(err)
	cmd.Stdin = f
	return cmd
}

// environ is the script's environment: what setup and env lines made of it.
func environ(ts *testscript.TestScript) (env []string) {
	for _, name := range []string{"WORK", "PATH", "HOME", "TMPDIR", "LEVEL", "PROCSUP_TEST_MARK", "GORACE", "GOTRACEBACK", "PROCSUP_RUN", "X", "RUN", "PROCSUP_SOCKET", "PROCSUP_STATE", "GOCACHE"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// cmdRC runs a command to its end and to the end of its output, and checks how
// it ended: rc CODE|SIGNAME [-in FILE] CMD… . Its streams are pipes, as a
// caller's usually are: whoever keeps one open makes the script fail.
func cmdRC(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: rc CODE|SIGNAME [-in FILE] CMD...")
	}
	cmd := buildCmd(ts, args[1:])
	defer cmd.Stdin.(*os.File).Close()
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ^C at the tests' terminal is not theirs
	done := make(chan error, 1)
	ts.Check(cmd.Start())
	go func() { done <- cmd.Wait() }() // ends with the command's streams
	select {
	case <-done:
	case <-time.After(patience):
		hung := "the command itself runs"
		if !alive(cmd.Process.Pid) {
			hung = "it has ended, but someone holds its output open"
		}
		unix.Kill(cmd.Process.Pid, unix.SIGTERM)
		cmd.Process.Kill()
		ts.Fatalf("no end after %v: %s", patience, hung)
	}
	if got := ending(cmd); got != args[0] {
		ts.Fatalf("ended with %s, want %s", got, args[0])
	}
}

func ending(cmd *exec.Cmd) string {
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		if ws.CoreDump() {
			return unix.SignalName(ws.Signal()) + "+core"
		}
		return unix.SignalName(ws.Signal())
	}
	return fmt.Sprint(ws.ExitStatus())
}

// cmdStart starts a command in the background: start NAME [-in FILE] CMD… .
// Its output goes to NAME.out and NAME.err, its pid to NAME.pid.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME [-in FILE] CMD...")
	}
	name, cmd := args[0], buildCmd(ts, args[1:])
	defer cmd.Stdin.(*os.File).Close()
	for _, s := range []struct {
		suffix string
		set    func(*os.File)
	}{{".out", func(f *os.File) { cmd.Stdout = f }}, {".err", func(f *os.File) { cmd.Stderr = f }}} {
		f, err := os.Create(ts.MkAbs(name + s.suffix))
		ts.Check(err)
		defer f.Close()
		s.set(f)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ts.Check(cmd.Start())
	p := &process{cmd: cmd, done: make(chan struct{})}
	stageOf(ts).running[name] = p
	go func() { cmd.Wait(); close(p.done) }() // ends with the command; ended or the cleanup waits for it
	ts.Check(os.WriteFile(ts.MkAbs(name+".pid"), fmt.Appendln(nil, cmd.Process.Pid), 0o644))
}

// cmdSend signals one process: send NAME|PIDFILE SIGNAME.
func cmdSend(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: send NAME|PIDFILE SIGNAME")
	}
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(args[1], "SIG"))
	if sig == 0 {
		ts.Fatalf("unknown signal %s", args[1])
	}
	if p := stageOf(ts).running[args[0]]; p != nil {
		ts.Check(p.cmd.Process.Signal(sig))
		return
	}
	list, err := pidsIn([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	for _, pid := range list {
		if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			ts.Fatalf("signal %d: %v", pid, err)
		}
	}
}

// cmdEnded waits for a started command and checks how it ended:
// ended NAME CODE|SIGNAME.
func cmdEnded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ended NAME CODE|SIGNAME")
	}
	p := stageOf(ts).running[args[0]]
	if p == nil {
		ts.Fatalf("%s was not started", args[0])
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		ts.Fatalf("%s runs after %v", args[0], patience)
	}
	delete(stageOf(ts).running, args[0])
	ts.Logf("[%s.out]\n%s[%s.err]\n%s", args[0], ts.ReadFile(args[0]+".out"), args[0], ts.ReadFile(args[0]+".err"))
	if got := ending(p.cmd); got != args[1] {
		ts.Fatalf("%s ended with %s, want %s", args[0], got, args[1])
	}
}
