package pgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
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
	children *Subreaper       // told of every child of ours, also at level Grp; nil without one
	session  bool
	wantMark bool
	mark     uint64    // 0 = none, see Config.Mark
	base     int       // session in which the command was started; 0 = unknown
	remote   bool      // started by another process, see OpenRemote
	siblings *Siblings // nil when remote: all processes are scanned
	token    string
	started  time.Time
	spawner  int64 // our own memory high-water mark at spawn, bytes
	identity platform.Identity

	child uint64 // what the Subreaper knows the leader by

	done  chan struct{} // closed by watch when the leader has ended
	exit  platform.Exit // valid once done is closed
	end   time.Time     // when the end was seen, valid once done is closed
	taken error         // somebody else reaped the leader; valid once done is closed

	exitKnown bool // valid once done is closed

	mu     sync.Mutex // guards what follows
	after  []func()   // see AfterEnd
	reaped bool
	sent   []Sent
	seen   map[int]uint64 // members seen so far: PID to start ticks
	homes  map[int]bool   // sessions and groups they made
}

func newGroup(session bool, token string) *Group {
	return &Group{session: session, token: token, done: make(chan struct{}), seen: map[int]uint64{}, homes: map[int]bool{}}
}

// Start runs the command in a new process group and returns once it was
// executed. An error is a *StartError and leaves nothing behind. The caller
// must call Reap in the end.
func Start(c Command, cfg Config) (*Group, error) {
	g := newGroup(c.Session, cfg.Token)
	g.wantMark, g.mark = cfg.Mark && cfg.BornWith == 0, cfg.BornWith
	if err := g.contain(cfg); err != nil {
		return nil, err
	}
	pidfd, err := g.spawn(c)
	if err != nil && g.cgroup != nil && cfg.Containment == Auto && cageRefused(err) {
		g.discard()
		g.cgroup = nil
		cfg.Subreaper.forgetHome()
		if err := g.contain(cfg.below()); err != nil {
			return nil, err
		}
		pidfd, err = g.spawn(c)
	}
	if err != nil {
		g.discard()
		return nil, err
	}
	switch {
	case g.cgroup != nil && cfg.Many:
		g.cgroup.Rest()
	case g.cgroup != nil:
		g.cgroup.CloseFD()
	}
	g.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	go g.watch() // ends with the leader; Reap waits for done
	return g, nil
}

// cageRefused reports whether clone3(2) may have refused to start a process in
// a control group: a seccomp filter, a threaded or vanished cgroup. Some of
// these can come from exec too, and then they come again.
func cageRefused(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EBUSY, unix.ENODEV, unix.EOPNOTSUPP, unix.EINVAL:
		return true
	}
	return false
}

// below is the best level without a control group.
func (cfg Config) below() Config {
	cfg.Containment = Grp
	if cfg.Subreaper != nil {
		cfg.Containment = Tree
	}
	return cfg
}

// cgroupName is the name asked for, else one of the token, else a unique one.
func (cfg Config) cgroupName() string {
	switch {
	case cfg.CgroupName != "":
		return platform.CgroupPrefix + cfg.CgroupName
	case cfg.Token != "":
		return platform.CgroupPrefix + path.Base(cfg.Token)
	}
	return fmt.Sprintf("%sp%d-%d", platform.CgroupPrefix, os.Getpid(), platform.MonotonicNow())
}

// contain chooses the level and makes what it needs.
func (g *Group) contain(cfg Config) error {
	g.sub, g.children = cfg.Subreaper, cfg.Subreaper
	want := cfg.Containment
	if want == Auto || want == Cgroup {
		name := cfg.cgroupName()
		cg, err := cfg.Subreaper.newCgroup(name)
		if err == nil {
			g.cgroup, g.level = cg, Cgroup
			return nil
		}
		if want == Cgroup {
			return &StartError{Step: "cgroup", Path: name, Err: err}
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
	sys := &syscall.SysProcAttr{Setpgid: !c.Session, Setsid: c.Session, Setctty: c.Terminal, Pdeathsig: c.ParentDeathSignal, PidFD: &pidfd}
	if g.cgroup != nil {
		sys.UseCgroupFD, sys.CgroupFD = true, g.cgroup.FD()
	}
	env := c.Env
	if g.token != "" {
		env = append(slices.Clip(slices.DeleteFunc(slices.Clone(env), isToken)), TokenVar+"="+g.token)
	}
	g.spawner = platform.SelfMaxRSS()
	g.started = time.Now()
	pid, child, err := g.children.start(true, func() (pid int, err error) {
		g.marking(func() {
			pid, err = syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{Dir: c.Dir, Env: env, Files: files, Sys: sys})
		})
		return pid, err
	})
	runtime.KeepAlive(c) // files are numbers
	if err != nil {
		return -1, &StartError{Step: stepOf(err), Path: c.Path, Err: err}
	}
	g.pid, g.child = pid, child
	if g.base = pid; !c.Session {
		g.base, _ = unix.Getsid(0)
	}
	if pidfd >= 0 {
		_ = unix.SetNonblock(pidfd, true)
		return pidfd, nil
	}
	if pidfd, err = platform.OpenPidfd(pid); err != nil { // cannot be reaped: the number is ours
		_ = killGroup(pid, syscall.SIGKILL)
		g.children.release(pid, child, func() bool { _, _, _ = platform.Reap(pid); return true })
		return -1, &StartError{Step: "pidfd", Path: c.Path, Err: err}
	}
	return pidfd, nil
}

// marking runs start, which starts the command, with a mark of its own if it
// is to have one.
func (g *Group) marking(start func()) {
	if !g.wantMark || g.level != Tree {
		start()
		return
	}
	var b [8]byte
	platform.Random(b[:])
	mark := 1<<62 | binary.NativeEndian.Uint64(b[:])>>3 // far from any limit that somebody sets
	if platform.MarkChildren(mark, start) {
		g.mark = mark
	}
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

// stdio lists the descriptors of the command: 0, 1, 2 and Files. All others that
// are not close-on-exec are inherited as they are.
func stdio(c Command) (_ []uintptr, _ func(), err error) {
	var null *os.File
	done := func() {
		if null != nil {
			null.Close()
		}
	}
	defer func() {
		if err != nil { // nobody should wait for a finalizer
			done()
		}
	}()
	files := make([]uintptr, 3)
	for i, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f == nil {
			if null == nil {
				if null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
					return nil, nil, &StartError{Step: "stdin", Path: os.DevNull, Err: errors.Unwrap(err)}
				}
			}
			f = null
		}
		if err := pass(f, &files[i]); err != nil {
			return nil, nil, err
		}
	}
	for n, f := range c.Files {
		if n < 3 || n > MaxFile {
			return nil, nil, &StartError{Step: "descriptor", Path: strconv.Itoa(n), Err: unix.EBADF}
		}
		for len(files) <= n {
			files = append(files, ^uintptr(0)) // closed
		}
		if err := pass(f, &files[n]); err != nil {
			return nil, nil, err
		}
	}
	return files, done, nil
}

// pass puts the number of an open file into to, for a program to inherit.
func pass(f *os.File, to *uintptr) error {
	fd, err := fdOf(f)
	if err != nil {
		return &StartError{Step: "stdin", Path: f.Name(), Err: unix.EBADF} // closed
	}
	if fd > 2 { // such as an end of os.Pipe: programs expect to block
		_ = unix.SetNonblock(int(fd), false)
	}
	*to = fd
	return nil
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
