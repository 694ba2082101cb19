package pgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// A Group is a running command and its tree. Its leader stays an unreaped
// zombie from its end until Reap, which pins its number: a signal to the
// group cannot hit a stranger.
type Group struct {
	pid      int
	pidfd    *os.File // in the netpoller: a waiting command costs no thread
	level    Level
	cgroup   *platform.Cgroup // nil below Cgroup
	sub      *Subreaper       // nil below Tree
	session  bool
	remote   bool // started by another process, see OpenRemote
	token    string
	started  time.Time
	spawner  int64 // our own memory high-water mark at spawn, bytes
	identity platform.Identity

	done chan struct{} // closed by watch when the leader has ended
	exit platform.Exit // valid once done is closed
	end  time.Time     // when the end was seen, valid once done is closed

	mu     sync.Mutex // guards what follows
	reaped bool
	sent   []Sent
	seen   map[int]uint64 // members seen so far: PID to start ticks
}

// Start runs the command in a new process group and returns once it was
// executed. An error is a *StartError and leaves nothing behind. The caller
// must call Reap in the end.
func Start(c Command, cfg Config) (*Group, error) {
	g := &Group{level: cfg.Containment, session: c.Session, token: cfg.Token, done: make(chan struct{}), seen: map[int]uint64{}}
	if err := g.contain(cfg); err != nil {
		return nil, err
	}
	pidfd, err := g.spawn(c)
	if err != nil {
		g.discard()
		return nil, err
	}
	g.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	go g.watch() // ends with the leader; Reap waits for done
	return g, nil
}

// contain chooses the level and makes what it needs.
func (g *Group) contain(cfg Config) error {
	g.sub = cfg.Subreaper
	want := cfg.Containment
	if want == Auto || want == Cgroup {
		name := cfg.CgroupName
		if name == "" {
			name = path.Base(cfg.Token)
		}
		cg, err := platform.NewCgroup("procsup-" + name)
		if err == nil {
			g.cgroup, g.level = cg, Cgroup
			return nil
		}
		if want == Cgroup {
			return &StartError{Step: "cgroup", Path: "procsup-" + name, Err: err}
		}
	}
	switch {
	case want == Grp:
		g.sub, g.level = nil, Grp
	case cfg.Subreaper != nil:
		g.level = Tree
	case want == Tree:
		return &StartError{Step: "contain", Path: "tree", Err: errors.New("needs a Subreaper")}
	default:
		g.level = Grp
	}
	return nil
}

func (g *Group) spawn(c Command) (pidfd int, err error) {
	if c.Dir != "" {
		if err := chdirOK(c.Dir); err != nil {
			return -1, &StartError{Step: "chdir", Path: c.Dir, Err: err}
		}
	}
	files, closeNull, err := stdio(c)
	if err != nil {
		return -1, err
	}
	defer closeNull()
	pidfd = -1
	sys := &syscall.SysProcAttr{Setpgid: !c.Session, Setsid: c.Session, Setctty: c.Terminal, PidFD: &pidfd}
	if g.cgroup != nil {
		sys.UseCgroupFD, sys.CgroupFD = true, g.cgroup.FD()
	}
	env := c.Env
	if g.token != "" {
		env = append(slices.Clip(slices.DeleteFunc(slices.Clone(env), isToken)), TokenVar+"="+g.token)
	}
	g.spawner = platform.SelfMaxRSS()
	g.started = time.Now()
	pid, err := g.sub.start(g, func() (int, error) {
		return syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{Dir: c.Dir, Env: env, Files: files, Sys: sys})
	})
	if err != nil {
		return -1, &StartError{Step: stepOf(err), Path: c.Path, Err: err}
	}
	g.pid = pid
	if pidfd >= 0 {
		_ = unix.SetNonblock(pidfd, true)
		return pidfd, nil
	}
	if pidfd, err = platform.OpenPidfd(pid); err != nil { // cannot be reaped: the number is ours
		_ = killGroup(pid, syscall.SIGKILL)
		_, _, _ = platform.Reap(pid)
		g.sub.disown(pid)
		return -1, &StartError{Step: "pidfd", Path: c.Path, Err: err}
	}
	return pidfd, nil
}

func isToken(kv string) bool { return len(kv) > len(TokenVar) && kv[:len(TokenVar)+1] == TokenVar+"=" }

// stepOf tells a fork that failed from an exec that failed: both come back as
// one errno, and these are the ones that only clone(2) gives.
func stepOf(err error) string {
	switch err {
	case syscall.EAGAIN, syscall.ENOSYS:
		return "fork"
	}
	return "exec"
}

func chdirOK(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return errors.Unwrap(err)
	}
	if !st.IsDir() {
		return syscall.ENOTDIR
	}
	return unix.Access(dir, unix.X_OK)
}

// stdio lists descriptors 0, 1 and 2 of the command. All others that are not
// close-on-exec are inherited as they are.
func stdio(c Command) ([]uintptr, func(), error) {
	var null *os.File
	files := make([]uintptr, 3)
	for i, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f == nil {
			if null == nil {
				var err error
				if null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
					return nil, nil, &StartError{Step: "stdin", Path: os.DevNull, Err: errors.Unwrap(err)}
				}
			}
			f = null
		}
		fd, err := fdOf(f)
		if err != nil {
			return nil, nil, &StartError{Step: "stdin", Path: f.Name(), Err: err}
		}
		files[i] = fd
	}
	return files, func() {
		if null != nil {
			null.Close()
		}
	}, nil
}

// fdOf is the number of an open file. File.Fd would make it blocking, which
// everyone who shares the open file would feel.
func fdOf(f *os.File) (fd uintptr, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = rc.Control(func(n uintptr) { fd = n })
	return fd, err
}

// watch waits for the leader's end without reaping it.
func (g *Group) watch() {
	defer close(g.done)
	rc, err := g.pidfd.SyscallConn()
	if err == nil {
		err = rc.Read(func(fd uintptr) bool {
			exit, ended, err := platform.PeekExit(int(fd))
			if ended {
				g.exit = exit
			}
			return ended || err != nil
		})
	}
	if err != nil {
		g.blockingPeek()
	}
	g.end = time.Now()
}

// blockingPeek is for a kernel whose pidfds cannot be polled; it holds a
// thread.
func (g *Group) blockingPeek() {
	if exit, err := platform.AwaitExit(g.pid); err == nil {
		g.exit = exit
	}
}

// discard frees what contain made when nothing was started.
func (g *Group) discard() {
	if g.cgroup != nil {
		_ = g.cgroup.Remove()
	}
}

// PID is the leader's process id, which is the group's id too.
func (g *Group) PID() int { return g.pid }

// Containment is the level in force.
func (g *Group) Containment() Level { return g.level }

// CgroupPath is the directory of the command's control group, "" without one.
func (g *Group) CgroupPath() string {
	if g.cgroup == nil {
		return ""
	}
	return g.cgroup.Path()
}

// Pidfd is the descriptor of the leader, for handing on; it stays ours and is
// closed by Reap.
func (g *Group) Pidfd() *os.File { return g.pidfd }

// Started is when the command was spawned.
func (g *Group) Started() time.Time { return g.started }

// Identity is the leader's identity. It is read on the first call, which must
// come before Reap, and kept.
func (g *Group) Identity() (platform.Identity, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.identity.PID != 0 {
		return g.identity, nil
	}
	if g.reaped {
		return platform.Identity{}, fmt.Errorf("identity of command %d: %w", g.pid, ErrReaped)
	}
	id, err := platform.Identify(g.pid)
	if err == nil {
		g.identity = id
	}
	return id, err
}

// Done is closed when the leader has ended. Its tree may live on.
func (g *Group) Done() <-chan struct{} { return g.done }

// Exit is how the leader ended and when that was seen. It blocks until Done.
func (g *Group) Exit() (platform.Exit, time.Time) {
	<-g.done
	return g.exit, g.end
}

// Reap frees the leader's number and the control group, and returns how the
// leader ended. It blocks until Done and ends nothing: see Stop and Finish.
// Calling it again is an error.
func (g *Group) Reap() (End, error) {
	<-g.done
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return End{}, ErrReaped
	}
	if g.identity.PID == 0 && g.identity.StartTicks == 0 {
		g.identity.PID = g.pid
	}
	exit, usage, err := platform.Reap(g.pid)
	g.reaped = true
	g.sub.disown(g.pid)
	g.pidfd.Close()
	if err != nil {
		return End{Exit: g.exit}, err
	}
	if usage.MaxRSS <= g.spawner {
		usage.MaxRSS = 0 // inherited at exec, not the command's own
	}
	if g.cgroup != nil {
		if peak, err := g.cgroup.MemoryPeak(); err == nil {
			usage.MaxRSS = peak
		}
		_ = g.cgroup.Remove() // stays only while survivors are in it
	}
	return End{Exit: exit, Usage: usage}, nil
}
