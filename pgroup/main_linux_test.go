package pgroup

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"procsup/platform"
)

// helperName as argv[0] makes the test binary a helper, whatever environment
// it has: the next argument says which.
const helperName = "pgroup-helper"

var helpers = map[string]func(args []string) int{}

func TestMain(m *testing.M) {
	if os.Args[0] == helperName {
		code := 99
		if h, ok := helpers[os.Args[1]]; ok {
			code = h(os.Args[2:])
		}
		exitNow(code)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	if signal.Ignored(unix.SIGINT) { // a shell starts `go test &` so
		signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGQUIT) // what we start has the default again
	}
	os.Exit(m.Run())
}

// exitNow ends a helper without the second that the race detector waits for
// where the environment does not say otherwise.
func exitNow(code int) {
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(code), 0, 0)
}

// A mode is one way to hold a tree.
type mode struct {
	name      string
	level     Level
	sub       bool
	exclusive bool
}

var (
	caged     = mode{"cgroup", Cgroup, false, false}
	cagedTree = mode{"cgroup+tree", Cgroup, true, true}
	tree      = mode{"tree", Tree, true, true}
	shared    = mode{"tree-shared", Tree, true, false}
	plain     = mode{"group", Grp, false, false}

	allModes   = []mode{caged, cagedTree, tree, shared, plain}
	holdsTree  = []mode{caged, cagedTree, tree, shared}
	holdsAlone = []mode{caged, cagedTree, tree} // also with an emptied environment
)

// in runs a test in each of the modes, one after the other: each looks at the
// whole process when it is done.
func in(t *testing.T, modes []mode, f func(t *testing.T, m mode)) {
	t.Helper()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			clean(t)
			if m.level == Cgroup {
				needCgroup(t)
			}
			f(t, m)
		})
	}
}

func needCgroup(t *testing.T) {
	t.Helper()
	if h, err := platform.FindCgroup(); err != nil || !h.Writable {
		t.Skipf("no cgroup v2 can be made here: %v %s", err, h.Reason)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

var tests atomic.Int64

// mark is unique for a test and begins the token of its commands.
func mark(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("t%d-%d", os.Getpid(), tests.Add(1))
}

// clean makes sure that a test leaves nothing: no descriptor, child, goroutine,
// cgroup or process that carries a token of this test run.
func clean(t *testing.T) {
	t.Helper()
	before := holding()
	routines := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
		if err := goleak.Find(routines); err != nil {
			t.Error(err)
		}
		if after := holding(); after != before {
			t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
		}
	})
}

func holding() string {
	var out []string
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(to, "anon_inode:[event") && !strings.HasPrefix(to, "/proc/") { // Go's poller; this listing
			out = append(out, "fd "+e.Name()+" "+to)
		}
	}
	for _, pid := range platform.Children(os.Getpid()) {
		st, _ := platform.ReadStat(pid)
		out = append(out, fmt.Sprintf("child %d %s %c", pid, st.Comm, st.State))
	}
	if h, err := platform.FindCgroup(); err == nil {
		entries, _ := os.ReadDir(h.Base)
		for _, e := range entries {
			if strings.Contains(e.Name(), fmt.Sprintf("t%d-", os.Getpid())) || strings.Contains(e.Name(), fmt.Sprintf("-p%d-", os.Getpid())) {
				out = append(out, "cgroup "+e.Name())
			}
		}
	}
	for _, st := range carriers(fmt.Sprintf("t%d-", os.Getpid())) {
		out = append(out, fmt.Sprintf("process %d %s %c", st.PID, platform.CommandLine(st.PID, 0), st.State))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// carriers are the live processes whose token begins so.
func carriers(prefix string) []platform.Stat {
	var out []platform.Stat
	if prefix == "" {
		return nil
	}
	platform.ScanProcesses(func(st platform.Stat) {
		if !st.Alive() {
			return
		}
		if v, ok, _ := platform.Environ(st.PID, TokenVar); ok && strings.HasPrefix(v, prefix) {
			out = append(out, st)
		}
	})
	return out
}

// A proc is a command under test with its output.
type proc struct {
	*Group
	t      *testing.T
	token  string
	sub    *Subreaper
	out    *bufio.Reader
	reaped bool
}

func (m mode) config(t *testing.T) Config {
	t.Helper()
	cfg := Config{Containment: m.level, Token: "outer/" + mark(t)}
	if m.sub {
		sub, err := BecomeSubreaper(m.exclusive)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Subreaper = sub
	}
	return cfg
}

// sh starts a shell script. The test reads what it says before it acts.
func sh(t *testing.T, m mode, script string) *proc {
	t.Helper()
	return launch(t, m.config(t), Command{Path: "/bin/sh", Args: []string{"sh", "-c", script}})
}

// perlPrelude gives scripts hold and hang: between a look at what has come and
// sleep, perl misses a signal for as long as it sleeps.
const perlPrelude = `use POSIX; $| = 1;
	sub hold { sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM, SIGINT, SIGCONT)) }
	sub hang { while (1) { sigsuspend(POSIX::SigSet->new) } }
	`

// perl starts a perl script, for what a shell cannot do without children: a
// signal that comes between a shell's fork and exec is lost.
func perl(t *testing.T, m mode, script string) *proc {
	t.Helper()
	return launch(t, m.config(t), Command{Path: "/usr/bin/perl", Args: []string{"perl", "-e", perlPrelude + script}})
}

// launch starts a command that prints, with all below it, to one pipe. Cleanup
// ends what the test left.
func launch(t *testing.T, cfg Config, c Command) *proc {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = w, os.Stderr
	if c.Env == nil {
		c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "GORACE=atexit_sleep_ms=0"}
	}
	g, err := Start(c, cfg)
	w.Close()
	if err != nil {
		r.Close()
		t.Fatal(err)
	}
	p := &proc{Group: g, t: t, token: cfg.Token, sub: cfg.Subreaper, out: bufio.NewReader(r)}
	t.Cleanup(func() {
		r.Close()
		if !p.reaped {
			g.Stop(Ladder{Grace: -1, Settle: 5 * time.Second}, nil)
			g.Reap()
		}
		for _, st := range carriers(cfg.Token) { // where nothing else is claimed
			_ = signalMember(st, unix.SIGKILL)
			await(t, st.PID)
		}
		reapAll()
	})
	return p
}

// reapAll reaps zombies the test process has adopted; there is no other child
// left at that point that anyone waits for.
func reapAll() {
	for pid := platform.FirstZombie(); pid != 0; pid = platform.FirstZombie() {
		if !platform.ReapIfEnded(pid) {
			return
		}
	}
}

// line reads the next line, which must begin with want, and returns the rest.
func (p *proc) line(want string) string {
	p.t.Helper()
	s, err := p.out.ReadString('\n')
	rest, ok := strings.CutPrefix(strings.TrimSuffix(s, "\n"), want)
	if err != nil || !ok {
		p.t.Fatalf("command said %q (%v), want %q", s, err, want)
	}
	return strings.TrimSpace(rest)
}

// number reads a line such as "child 17".
func (p *proc) number(want string) int {
	p.t.Helper()
	n, err := strconv.Atoi(p.line(want))
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// reap reaps the leader and checks that nothing of the tree is left, as far as
// it can be seen from outside.
func (p *proc) reap() End {
	p.t.Helper()
	path := p.CgroupPath()
	end, err := p.Reap()
	if err != nil {
		p.t.Error(err)
	}
	p.reaped = true
	for _, st := range carriers(p.token) {
		p.t.Errorf("left: %d %s", st.PID, platform.CommandLine(st.PID, 0))
	}
	if path != "" {
		if _, err := os.Stat(path); err == nil {
			p.t.Errorf("left: %s", path)
		}
	}
	return end
}

// alive is for pids that cannot have been reused within a test.
func alive(pid int) bool {
	st, err := platform.ReadStat(pid)
	return err == nil && st.Alive()
}

// await waits until a process has ended.
func await(t *testing.T, pid int) {
	t.Helper()
	if !endsWithin(pid, 10*time.Second) {
		t.Errorf("process %d (%s) lives", pid, platform.CommandLine(pid, 0))
	}
}

func endsWithin(pid int, d time.Duration) bool {
	fd, err := platform.OpenPidfd(pid)
	if err != nil {
		return !alive(pid)
	}
	defer unix.Close(fd)
	for until := time.Now().Add(d); ; {
		left := time.Until(until)
		if left <= 0 {
			return false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left/time.Millisecond)+1)
		if n > 0 || err != nil && err != unix.EINTR {
			return true
		}
	}
}

// sentTo lists "SIGNAL to" of a report, in order.
func sentTo(r Report) []string {
	var out []string
	for _, s := range r.Signals {
		one := platform.SignalName(s.Signal) + " " + s.To
		if s.Err != nil {
			one += " refused"
		}
		out = append(out, one)
	}
	return out
}

func wantSent(t *testing.T, r Report, want ...string) {
	t.Helper()
	if got := sentTo(r); !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

func wantNone(t *testing.T, what string, ms []Member) {
	t.Helper()
	if len(ms) > 0 {
		t.Errorf("%s: %+v", what, ms)
	}
}

// took fails unless d lies within the bounds.
func took(t *testing.T, what string, d, least, most time.Duration) {
	t.Helper()
	if d < least || d > most {
		t.Errorf("%s took %v, want %v to %v", what, d.Round(time.Millisecond), least, most)
	}
}
