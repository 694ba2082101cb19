package pgroup

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

func init() {
	helpers["firstthread"] = firstThread
	helpers["waiting"] = waiting
	if os.Args[0] == helperName && len(os.Args) > 1 && os.Args[1] == "firstthread" {
		runtime.LockOSThread() // in init: the main goroutine stays on the first thread
	}
}

// firstThread ends its first thread and goes on with the others.
func firstThread([]string) int {
	go func() {
		for {
			if st, err := platform.ReadStat(os.Getpid()); err == nil && st.State == 'Z' {
				fmt.Println("ready", os.Getpid())
				return
			}
			runtime.Gosched()
		}
	}()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	return 1
}

func self(args ...string) Command {
	return Command{Path: "/proc/self/exe", Args: append([]string{helperName}, args...)}
}

// G24: a zombie is not alive, but one whose other threads run is.
func TestG24ZombieFirstThreadIsAlive(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p := launch(t, m.config(t), self("firstthread"))
		pid := p.number("ready")
		if pid != p.PID() || !alive(pid) {
			t.Fatalf("process %d, leader %d, counts as dead", pid, p.PID())
		}
		select {
		case <-p.Done():
			t.Fatal("ended")
		default:
		}
		r := p.Stop(long, nil)
		wantNone(t, "survivors", r.Survivors)
		p.reap()
	})
	in(t, holdsTree, func(t *testing.T, m mode) { // as a member
		p := sh(t, m, fmt.Sprintf(`perl -e 'exec {"/proc/%d/exe"} "%s", "firstthread"' & wait`, os.Getpid(), helperName))
		pid := p.number("ready")
		if ms := p.Members(); len(ms) != 1 || ms[0].PID != pid {
			t.Errorf("members %+v, want %d", ms, pid)
		}
		r := p.Stop(long, nil)
		wantNone(t, "survivors", r.Survivors)
		p.reap()
	})
}

// G24: what a tree leaves is adopted and reaped; clean checks that no zombie is
// left.
func TestG24OrphansAreReaped(t *testing.T) {
	in(t, []mode{tree, cagedTree, shared}, func(t *testing.T, m mode) {
		p := sh(t, m, `i=0; while [ $i -lt 20 ]; do (sleep 0.01 &); i=$((i+1)); done; (setsid sleep 0.05 &); exit 0`)
		r := p.Finish(Wait, 0, long, nil)
		wantNone(t, "survivors", r.Survivors)
		p.reap()
		p.sub.Reap()
	})
}

// Nothing that os/exec waits for is lost to a Subreaper that is not exclusive.
func TestEmbeddedNeverStealsFromOsExec(t *testing.T) {
	clean(t)
	cfg := shared.config(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var ran int
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			ran++
			if err := exec.Command("/bin/sh", "-c", "(exit 7)").Run(); err == nil || err.Error() != "exit status 7" {
				t.Errorf("os/exec: %v", err)
				return
			}
		}
	})
	for i := range 15 {
		cfg.Token = mark(t)
		p := launch(t, cfg, Command{Path: "/bin/sh", Args: []string{"sh", "-c", `(sleep 0.01 &); setsid sleep 1000 & exit 3`}})
		if i%2 == 0 {
			<-p.Done()
			p.Finish(Kill, 0, long, nil)
		} else {
			p.Stop(long, nil)
		}
		cfg.Subreaper.Reap() // not exclusive: does nothing
		p.reap()
	}
	close(stop)
	wg.Wait()
	if ran < 5 {
		t.Errorf("os/exec ran only %d commands", ran)
	}
}

// Children from before are never signalled and never reaped.
func TestForeignChildrenAreLeftAlone(t *testing.T) {
	for _, m := range []mode{tree, shared} {
		t.Run(m.name, func(t *testing.T) {
			clean(t)
			dead := exec.Command("/bin/sh", "-c", "exit 9")
			live := exec.Command("/bin/sleep", "1000")
			for _, c := range []*exec.Cmd{dead, live} {
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
			}
			awaitState(t, dead.Process.Pid, 'Z')
			p := sh(t, m, `(setsid sleep 1000 &); (exec sleep 1000) & echo ready; exec sleep 1000`)
			p.line("ready")
			for _, ms := range p.Members() {
				if ms.PID == live.Process.Pid {
					t.Error("a foreign child is a member")
				}
			}
			wantNone(t, "survivors", p.Stop(short, nil).Survivors)
			p.reap()
			p.sub.Reap()
			if err := dead.Wait(); err == nil || err.Error() != "exit status 9" {
				t.Errorf("the dead child: %v", err)
			}
			if !alive(live.Process.Pid) {
				t.Error("the live child was ended")
			}
			live.Process.Kill()
			if err := live.Wait(); err == nil || err.Error() != "signal: killed" {
				t.Errorf("the live child: %v", err)
			}
		})
	}
}

// The reaper runs while children are started, some of which cannot be.
func TestReapWhileChildrenStart(t *testing.T) {
	clean(t)
	cfg := tree.config(t)
	stop := make(chan struct{})
	var reaping, starting sync.WaitGroup
	reaping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				cfg.Subreaper.Reap()
				cfg.Subreaper.adopted()
			}
		}
	})
	for range 4 {
		starting.Go(func() {
			for range 25 {
				g, err := Start(Command{Path: "/bin/sh", Args: []string{"sh", "-c", "exit 5"}}, cfg)
				if err != nil {
					t.Error(err)
					return
				}
				if end, err := g.Reap(); err != nil || end.Code != 5 {
					t.Errorf("%+v, %v", end.Exit, err)
				}
				if _, err := Start(Command{Path: "/no/such", Args: []string{"x"}}, cfg); err == nil || err.(*StartError).Err != unix.ENOENT {
					t.Errorf("missing file: %v", err)
				}
			}
		})
	}
	starting.Wait()
	close(stop)
	reaping.Wait()
}

// A number that was freed may be given to the next child before the first is
// forgotten.
func TestReleaseForgetsOnlyItsOwnChild(t *testing.T) {
	s := &Subreaper{known: map[int]uint64{}}
	_, first, _ := s.start(true, func() (int, error) { return 77, nil })
	_, second, _ := s.start(true, func() (int, error) { return 77, nil })
	s.release(77, first, func() bool { return true })
	if !s.isKnown(77) {
		t.Error("the second was forgotten")
	}
	s.release(77, second, func() bool { return false })
	if !s.isKnown(77) {
		t.Error("it was forgotten though it had not ended")
	}
	s.release(77, second, func() bool { return true })
	if s.isKnown(77) {
		t.Error("it is still known")
	}
}

// waiting starts many commands that wait, and says how many threads that takes.
func waiting([]string) int {
	sub, err := BecomeSubreaper(true)
	if err != nil {
		return 1
	}
	var groups []*Group
	var wg sync.WaitGroup
	for range 500 {
		g, err := Start(Command{Path: "/bin/sleep", Args: []string{"sleep", "1000"}}, Config{Containment: Tree, Subreaper: sub})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		groups = append(groups, g)
	}
	tasks, _ := os.ReadDir("/proc/self/task")
	fmt.Println("threads", len(tasks))
	for _, g := range groups {
		_ = g.Signal(syscall.SIGKILL)
	}
	for _, g := range groups {
		wg.Go(func() { g.Reap() })
	}
	wg.Wait()
	return 0
}

func TestFiveHundredWaitOnFewThreads(t *testing.T) {
	clean(t)
	p := launch(t, plain.config(t), self("waiting"))
	if n := p.number("threads"); n > 20 {
		t.Errorf("%d threads, want at most 20", n)
	}
	<-p.Done()
	if end := p.reap(); end.Exit != (platform.Exit{}) {
		t.Errorf("helper ended by %+v", end.Exit)
	}
}

// Neither a Stop in its grace nor a Finish that waits may poll.
func TestWaitingDoesNotPoll(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		leader := sh(t, m, immune)
		leader.line("ready")
		next := make(chan struct{})
		quiet(t, "Stop", func() { leader.Stop(Ladder{Grace: time.Minute, Settle: 5 * time.Second}, next) }, next)
		leader.reap()
	})
	in(t, allModes, func(t *testing.T, m mode) {
		left := sh(t, m, `sh -c 'trap "" TERM; echo ready; exec sleep 1000' & exit 0`)
		left.line("ready")
		<-left.Done()
		next := make(chan struct{})
		quiet(t, "Finish", func() { left.Finish(Wait, 0, Ladder{Grace: -1, Settle: 5 * time.Second}, next) }, next)
		left.reap()
	})
}

// quiet runs f until next and counts what this process does meanwhile.
func quiet(t *testing.T, what string, f func(), next chan<- struct{}) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	usage := func() (ru unix.Rusage) { _ = unix.Getrusage(unix.RUSAGE_SELF, &ru); return ru }
	time.Sleep(30 * time.Millisecond) // until it waits
	before := usage()
	time.Sleep(300 * time.Millisecond) // what is measured
	after := usage()
	if n := after.Nvcsw - before.Nvcsw; n > 100 {
		t.Errorf("%s: %d context switches in 300 ms", what, n)
	}
	if cpu := time.Duration(after.Utime.Nano() - before.Utime.Nano() + after.Stime.Nano() - before.Stime.Nano()); cpu > 30*time.Millisecond {
		t.Errorf("%s: %v of CPU in 300 ms", what, cpu)
	}
	next <- struct{}{}
	<-done
}
