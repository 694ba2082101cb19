package pgroup

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

func init() {
	helpers["guard"] = GuardMain
	helpers["supervise"] = supervise
}

var guardArgv = []string{helperName, "guard"}

// supervise is a program such as procsup run: a command with a guard.
// Arguments: mode, policy, token, grace, deadline (0 = none), script.
func supervise(args []string) int {
	var m mode
	for _, m = range allModes {
		if m.name == args[0] {
			break
		}
	}
	cfg := Config{Containment: m.level, Token: args[2]}
	if m.sub {
		cfg.Subreaper, _ = BecomeSubreaper(m.exclusive)
	}
	grace, _ := time.ParseDuration(args[3])
	after, _ := time.ParseDuration(args[4])
	ladder := Ladder{Grace: grace}
	g, err := Start(Command{Path: "/bin/sh", Args: []string{"sh", "-c", args[5]}, Env: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}, cfg)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	var deadline time.Time
	if after > 0 {
		deadline = time.Now().Add(after)
	}
	guard, err := StartGuard(g, "/proc/self/exe", guardArgv, ladder, deadline)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("guard", guard.pid)
	<-g.Done()
	g.Finish(Leftover(args[1]), 0, ladder, nil)
	exit, _ := g.Exit()
	fmt.Println("ended", platform.SignalName(exit.Signal), "kept", guard.KeptDeadline(), "died", guard.Died())
	g.Reap()
	guard.Dismiss()
	return 0
}

// A supervisor is a supervise helper with its output.
type supervisor struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   *bufio.Reader
	token string
	guard int
	also  []int // without the token; ended by Cleanup
}

func startSupervisor(t *testing.T, m mode, policy Leftover, grace, deadline time.Duration, script string, extra ...*os.File) *supervisor {
	t.Helper()
	s := &supervisor{t: t, token: mark(t), cmd: exec.Command("/proc/self/exe")}
	s.cmd.Args = []string{helperName, "supervise", m.name, string(policy), s.token, grace.String(), deadline.String(), script}
	s.cmd.Stderr = os.Stderr
	s.cmd.ExtraFiles = extra
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout = w
	err = s.cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewReader(r)
	t.Cleanup(func() {
		s.kill()
		r.Close()
		left := carriers(s.token)
		for _, pid := range s.also {
			if st, err := platform.ReadStat(pid); err == nil {
				left = append(left, st)
			}
		}
		for _, st := range left {
			_ = signalMember(st, unix.SIGKILL)
			await(t, st.PID)
		}
	})
	return s
}

func (s *supervisor) kill() {
	if s.cmd.ProcessState == nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	}
}

// lines reads until each of the wanted beginnings was said once, in any order,
// and returns the first number in each.
func (s *supervisor) lines(want ...string) map[string]int {
	s.t.Helper()
	got := map[string]int{}
	for len(got) < len(want) {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("supervisor said %v, then %v; want %q", got, err, want)
		}
		for _, w := range want {
			if rest, ok := strings.CutPrefix(line, w); ok {
				got[w], _ = strconv.Atoi(strings.TrimSpace(rest))
			}
		}
	}
	if g, ok := got["guard"]; ok {
		s.guard = g
	}
	if pid, ok := got["away"]; ok {
		s.also = append(s.also, pid)
	}
	return got
}

// cleared waits until nothing of the tree, nor the guard, is left.
func (s *supervisor) cleared(within time.Duration) {
	s.t.Helper()
	until := time.Now().Add(within)
	for {
		left := carriers(s.token)
		for _, pid := range append(s.also, s.guard) {
			if st, err := platform.ReadStat(pid); err == nil && st.Alive() {
				left = append(left, st)
			}
		}
		if len(left) == 0 {
			return
		}
		if !endsWithin(left[0].PID, time.Until(until)) {
			for _, st := range left {
				s.t.Errorf("left after %v: %d %s", within, st.PID, platform.CommandLine(st.PID, 0))
			}
			return
		}
	}
}

const (
	guardGrace = 200 * time.Millisecond
	atMost     = 3 * time.Second // 1 s is the promise; the rest is for a busy machine
)

var guardModes = []mode{cagedTree, tree, plain}

func TestGuardEndsTheTree(t *testing.T) {
	for name, x := range map[string]struct {
		policy Leftover
		script string
		say    []string
		modes  []mode
	}{
		"children":    {Kill, `sleep 1000 & echo up; wait`, []string{"up"}, guardModes},
		"TERM-immune": {Kill, `sh -c 'trap "" TERM; echo up; while :; do sleep 1000; done' & trap "" TERM; while :; do sleep 1000; done`, []string{"up"}, guardModes},
		"escapee":     {Kill, `setsid sh -c 'trap "" TERM; echo away $$; while :; do sleep 1000; done' & exec sleep 1000`, []string{"away"}, guardModes},
		"leader ended": {Wait, `sh -c 'echo up; exec sleep 1000' & setsid sh -c 'echo away $$; exec sleep 1000' & exit 0`,
			[]string{"up", "away"}, guardModes},
		"daemon": {Wait, `perl -e 'use POSIX; $| = 1; exit if fork; setsid; exit if fork; print "away $$\n"; exec "/bin/sleep", "1000"'; exec sleep 1000`,
			[]string{"away"}, guardModes},
		"daemon without environment": {Wait, `perl -e 'use POSIX; $| = 1; %ENV = (); exit if fork; setsid; exit if fork; print "away $$\n"; exec "/bin/sleep", "1000"'; exec sleep 1000`,
			[]string{"away"}, []mode{cagedTree}},
		"child without environment": {Kill, `env -i /usr/bin/setsid /bin/sh -c 'echo away $$; exec /bin/sleep 1000' & wait`,
			[]string{"away"}, guardModes},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, x.modes, func(t *testing.T, m mode) {
				s := startSupervisor(t, m, x.policy, guardGrace, 0, x.script)
				s.lines(append(x.say, "guard")...)
				s.kill()
				s.cleared(guardGrace + atMost)
			})
		})
	}
}

// SIGKILL at any moment once the guard is started, though it may not be up.
func TestGuardAtRandomMoments(t *testing.T) {
	in(t, guardModes, func(t *testing.T, m mode) {
		for range 5 {
			s := startSupervisor(t, m, Wait, guardGrace, 0, `sleep 0.02 & setsid sleep 1000 & sh -c 'sleep 0.01; sleep 1000 & exit' & sleep 0.015; exit 1`)
			s.lines("guard")
			time.Sleep(rand.N(40 * time.Millisecond)) // the moment
			s.kill()
			s.cleared(guardGrace + atMost)
		}
	})
}

func TestGuardKeepsTheDeadlineOfAStoppedSupervisor(t *testing.T) {
	in(t, guardModes, func(t *testing.T, m mode) {
		s := startSupervisor(t, m, Kill, guardGrace, 200*time.Millisecond, `sleep 1000 & echo up; wait`)
		s.lines("up", "guard")
		_ = s.cmd.Process.Signal(syscall.SIGSTOP)
		awaitState(t, s.cmd.Process.Pid, 'T')
		begin := time.Now()
		s.cleared(5 * time.Second)
		took(t, "the end", time.Since(begin), 0, 200*time.Millisecond+guardGrace+atMost)
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
		if line, _ := s.out.ReadString('\n'); line != "ended TERM kept true died false\n" {
			t.Errorf("supervisor said %q", line)
		}
		s.cmd.Wait()
	})
}

// The supervisor is stopped after the deadline, in its own ladder.
func TestGuardGoesOnWithTheLadder(t *testing.T) {
	clean(t)
	s := startSupervisor(t, tree, Kill, guardGrace, 50*time.Millisecond, `trap "" TERM; echo up; while :; do sleep 1000; done`)
	s.lines("up", "guard")
	time.Sleep(250 * time.Millisecond) // past the deadline and the guard's first look at it
	if !alive(s.guard) || len(carriers(s.token)) == 0 {
		t.Error("the guard acted although the supervisor runs")
	}
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	s.cleared(5 * time.Second)
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	if line, _ := s.out.ReadString('\n'); line != "ended KILL kept true died false\n" {
		t.Errorf("supervisor said %q", line)
	}
	s.cmd.Wait()
}

func TestGuardLeavesTheDeadlineToASupervisorThatRuns(t *testing.T) {
	clean(t)
	s := startSupervisor(t, tree, Kill, time.Millisecond, 20*time.Millisecond, `read x </proc/self/fd/3; exit 0`, pipeEnd(t, 500*time.Millisecond))
	s.lines("guard")
	if line, _ := s.out.ReadString('\n'); line != "ended  kept false died false\n" {
		t.Errorf("supervisor said %q", line)
	}
	s.cmd.Wait()
}

// pipeEnd is a pipe's read end that gets end-of-file after d.
func pipeEnd(t *testing.T, d time.Duration) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	timer := time.AfterFunc(d, func() { w.Close() })
	t.Cleanup(func() {
		if timer.Stop() {
			w.Close()
		}
	})
	return r
}

// up waits until a guard has come up: then it ignores TERM.
func up(t *testing.T, pid int) {
	t.Helper()
	for range 5000 {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, rest, ok := strings.Cut(string(b), "\nSigIgn:\t"); ok {
			mask, _ := strconv.ParseUint(rest[:16], 16, 64)
			if mask&(1<<(unix.SIGPIPE-1)) != 0 {
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("guard %d does not come up", pid)
}

func TestGuardIgnoresWhatATreeIsSent(t *testing.T) {
	clean(t)
	s := startSupervisor(t, tree, Kill, guardGrace, 0, `echo up; exec sleep 1000`)
	s.lines("up", "guard")
	up(t, s.guard)
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGALRM, unix.SIGTSTP, unix.SIGCONT} {
		_ = unix.Kill(s.guard, sig)
	}
	if endsWithin(s.guard, 50*time.Millisecond) {
		t.Error("it ended")
	}
	s.kill()
	s.cleared(guardGrace + atMost)
}

// The guard lives for a whole grace here, with nothing of the caller's open.
func TestGuardHoldsNoDescriptorOfTheCaller(t *testing.T) {
	clean(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := startSupervisor(t, tree, Kill, time.Second, 0,
		`setsid sh -c 'trap "" TERM; echo away $$; exec >/dev/null 2>&1 3>&- 4>&- 5>&- 6>&-; while :; do sleep 1000; done' & exec sleep 1000`, w, w, w, w) // 3 and 4 are the guard's own
	w.Close()
	s.lines("away", "guard")
	up(t, s.guard)
	for _, fd := range []string{"0", "1", "2"} {
		if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", s.guard, fd)); to != "/dev/null" {
			t.Errorf("descriptor %s of the guard is %s", fd, to)
		}
	}
	begin := time.Now()
	s.kill()
	for name, end := range map[string]io.Reader{"a descriptor of the caller": r, "standard output": s.out} {
		if _, err := io.Copy(io.Discard, end); err != nil {
			t.Error(err)
		}
		took(t, name+": end-of-file", time.Since(begin), 0, 700*time.Millisecond)
	}
	if !alive(s.guard) {
		t.Error("the guard was gone already: nothing was shown")
	}
	s.cleared(2 * time.Second)
}

func TestGuardDies(t *testing.T) {
	in(t, []mode{tree, plain}, func(t *testing.T, m mode) {
		p := sh(t, m, `exec sleep 1000`)
		var none *Guard
		none.Release()
		none.Dismiss()
		guard, err := StartGuard(p.Group, "/proc/self/exe", guardArgv, Ladder{}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if none.Died() || guard.Died() || guard.KeptDeadline() {
			t.Error("a guard that lives has died")
		}
		if ms := p.Members(); len(ms) > 0 {
			t.Errorf("the guard is a member: %+v", ms)
		}
		guard.Release()
		await(t, guard.pid)
		if p.sub.Reap(); !guard.Died() {
			t.Error("a guard that was killed has not died")
		}
		// The number is free now: nothing may go to it.
		if guard.Died() {
			t.Error("it died twice")
		}
		guard.Release()
		guard.Dismiss()
		guard.Dismiss()
		if _, err := StartGuard(p.Group, "/no/such", guardArgv, Ladder{}, time.Time{}); err == nil {
			t.Error("a missing guard was started")
		}
		p.Stop(long, nil)
		p.reap()
	})
}
