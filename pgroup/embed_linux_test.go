package pgroup

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

func init() {
	helpers["firstthread"] = firstThread
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

// A leader that is kept as a zombie is the first that the kernel shows, for
// ever, and must not hide an orphan that has ended. Nor may orphans that had
// ended before anyone looked stay.
func TestG24OrphansBehindAPinnedLeader(t *testing.T) {
	for _, m := range []mode{tree, shared} {
		t.Run(m.name, func(t *testing.T) {
			clean(t)
			pinned := sh(t, m, `exit 0`)
			<-pinned.Done()
			cfg := Config{Containment: Tree, Subreaper: pinned.sub, Token: mark(t)}
			p := launch(t, cfg, Command{Path: "/bin/sh", Args: []string{"sh", "-c", `sh -c '(exec sh -c "echo orphan \$\$") & exit'; exec sleep 1000`}})
			orphan := p.number("orphan")
			awaitState(t, orphan, 'Z')
			if p.sub.Reap(); !m.exclusive {
				p.Members()
			}
			if _, err := platform.ReadStat(orphan); err == nil {
				t.Error("the orphan was not reaped")
			}
			p.Stop(long, nil)
			p.reap()
			pinned.reap()
		})
	}
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
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				cfg.Subreaper.Reap() // not exclusive: does nothing
				runtime.Gosched()
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

// What a child from before leaves is adopted too, but is nobody's of ours.
func TestForeignOrphansAreLeftAlone(t *testing.T) {
	clean(t)
	before := exec.Command("/bin/sh", "-c", `read x; setsid sleep 1000 >/dev/null & echo $!`)
	in, err := before.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := before.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Start(); err != nil {
		t.Fatal(err)
	}
	p := sh(t, tree, `echo ready; exec sleep 1000`)
	p.line("ready")
	in.Close()
	var orphan int
	if _, err := fmt.Fscan(out, &orphan); err != nil {
		t.Fatal(err)
	}
	if err := before.Wait(); err != nil {
		t.Error(err)
	}
	if ms := p.Members(); len(ms) > 0 {
		t.Errorf("members %+v", ms)
	}
	p.Stop(long, nil)
	p.reap()
	if !alive(orphan) {
		t.Error("the orphan was ended")
	}
	_ = unix.Kill(orphan, unix.SIGKILL)
	await(t, orphan)
	p.sub.Reap()
}

// A child that ends at once must not be taken before it is known.
func TestReapWaitsUntilAChildIsKnown(t *testing.T) {
	clean(t)
	s, err := BecomeSubreaper(true)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/true")
	reaping := make(chan struct{})
	done, err := s.Helper(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		_, err := platform.AwaitExit(cmd.Process.Pid)
		go func() { s.Reap(); close(reaping) }()
		select {
		case <-reaping:
			t.Error("Reap did not wait")
		case <-time.After(50 * time.Millisecond):
		}
		return cmd.Process.Pid, err
	})
	if err != nil {
		t.Fatal(err)
	}
	<-reaping
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	done()
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
