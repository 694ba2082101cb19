//go:build !linux

package pgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"procsup/platform"
)

// A Group is a running command and its process group. Here the leader is
// reaped when it ends, so the group's number is not pinned afterwards, and
// what left the group is out of reach.
type Group struct {
	pid     int
	proc    *os.Process
	started time.Time

	done chan struct{} // closed by watch
	exit platform.Exit
	use  platform.Usage
	end  time.Time

	mu     sync.Mutex
	reaped bool
	sent   []Sent
}

// A Subreaper cannot be had here.
type Subreaper struct{}

// BecomeSubreaper is not supported here.
func BecomeSubreaper(bool) (*Subreaper, error) {
	return nil, fmt.Errorf("become subreaper: %w", errors.ErrUnsupported)
}

// Start runs the command in a new process group, see the Linux version.
func Start(c Command, cfg Config) (*Group, error) {
	if cfg.Containment == Cgroup || cfg.Containment == Tree {
		return nil, &StartError{Step: "contain", Path: string(cfg.Containment), Err: errors.ErrUnsupported}
	}
	env := c.Env
	if cfg.Token != "" {
		env = append(slices.Clone(env), TokenVar+"="+cfg.Token)
	}
	g := &Group{done: make(chan struct{}), started: time.Now()}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, &StartError{Step: "stdin", Path: os.DevNull, Err: err}
	}
	defer null.Close()
	files := []*os.File{c.Stdin, c.Stdout, c.Stderr}
	for i, f := range files {
		if f == nil {
			files[i] = null
		}
	}
	for n, f := range c.Files {
		if n < 3 || n > MaxFile {
			return nil, &StartError{Step: "descriptor", Path: strconv.Itoa(n), Err: os.ErrInvalid}
		}
		for len(files) <= n {
			files = append(files, nil)
		}
		files[n] = f
	}
	g.proc, err = os.StartProcess(c.Path, c.Args, &os.ProcAttr{Dir: c.Dir, Env: env, Files: files, Sys: groupAttr(c)})
	if err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			err = errno
		}
		return nil, &StartError{Step: "exec", Path: c.Path, Err: err}
	}
	g.pid = g.proc.Pid
	go g.watch() // ends with the leader; Reap waits for done
	return g, nil
}

func (g *Group) watch() {
	defer close(g.done)
	st, err := g.proc.Wait()
	g.end = time.Now()
	if err != nil {
		g.exit = platform.Exit{Code: -1}
		return
	}
	g.exit = exitOf(st)
	g.use = platform.Usage{User: st.UserTime(), System: st.SystemTime()}
}

// PID is the leader's process id.
func (g *Group) PID() int { return g.pid }

// Containment is always the group alone.
func (g *Group) Containment() Level { return Grp }

// CgroupPath is always "".
func (g *Group) CgroupPath() string { return "" }

// Started is when the command was spawned.
func (g *Group) Started() time.Time { return g.started }

// Identity is not supported here.
func (g *Group) Identity() (platform.Identity, error) { return platform.Identify(g.pid) }

// Done is closed when the leader has ended.
func (g *Group) Done() <-chan struct{} { return g.done }

// Exit is how the leader ended and when. It blocks until Done.
func (g *Group) Exit() (platform.Exit, time.Time) {
	<-g.done
	return g.exit, g.end
}

// Gone reports whether the leader has ended; the rest cannot be seen.
func (g *Group) Gone() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// Members cannot be listed here.
func (g *Group) Members() []Member { return nil }

// Signals lists what Stop and Finish have sent so far.
func (g *Group) Signals() []Sent {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Sent(nil), g.sent...)
}

// Signal sends sig to the group, on Windows to the leader.
func (g *Group) Signal(sig syscall.Signal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return ErrReaped
	}
	return signalGroup(g.proc, g.pid, sig)
}

// SignalLeader sends sig to the leader alone.
func (g *Group) SignalLeader(sig syscall.Signal) error { return g.proc.Signal(sig) }

func (g *Group) step(sig syscall.Signal) {
	err := g.Signal(sig)
	if errors.Is(err, platform.ErrGone) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent = append(g.sent, Sent{Signal: sig, To: ToGroup, PID: g.pid, At: time.Now(), Err: err})
}

// Stop ends the group: the signal, the grace, KILL.
func (g *Group) Stop(l Ladder, next <-chan struct{}) Report {
	l = l.withDefaults()
	g.step(l.Signal)
	grace := time.NewTimer(max(l.Grace, 0))
	defer grace.Stop()
	select {
	case <-g.done:
	case <-grace.C:
	case <-next:
	}
	g.step(syscall.SIGKILL)
	select {
	case <-g.done:
	case <-time.After(l.Settle):
		return Report{Signals: g.Signals(), Survivors: []Member{{PID: g.pid, Why: "still alive after KILL"}}}
	}
	return Report{Signals: g.Signals()}
}

// Finish ends what is left of the group after its leader ended; it cannot
// list it.
func (g *Group) Finish(policy Leftover, linger time.Duration, l Ladder, next <-chan struct{}) Report {
	<-g.done
	if policy == Kill {
		g.step(syscall.SIGTERM)
	}
	return Report{Signals: g.Signals()}
}

// Reap returns how the leader ended.
func (g *Group) Reap() (End, error) {
	<-g.done
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return End{}, ErrReaped
	}
	g.reaped = true
	return End{Exit: g.exit, Usage: g.use}, nil
}

// Reap does nothing here.
func (s *Subreaper) Reap() {}

// AfterEnd has f called when the leader has ended.
func (g *Group) AfterEnd(f func()) {
	go func() { // ends with the leader, and f
		<-g.Done()
		f()
	}()
}

// Holds knows no more than the leader here.
func (g *Group) Holds(pid int) bool { return pid == g.pid }

// HoldsCgroup is for Linux only.
func (g *Group) HoldsCgroup(uint64) bool { return false }
