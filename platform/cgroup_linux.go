package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Cgroup is a cgroup v2 directory that holds one tree of processes. Its
// methods may be called from any goroutine. While it is open a shared lock on
// its cgroup.events keeps Sweep of another process away from it.
type Cgroup struct {
	path  string
	token chan struct{} // held by the one WaitEmpty that uses the poller

	mu     sync.Mutex
	rests  bool     // events is opened again when it is needed
	dir    int      // for SysProcAttr.CgroupFD; −1 after CloseFD
	events int      // cgroup.events; −1 when closed
	file   *os.File // owns events once it is in the poller, nil before
}

// NewCgroup makes a cgroup below our own one (FindCgroup). The name gets
// CgroupPrefix unless it has it; it must be a plain name without dot or slash.
// The error says why it is not possible: errors.ErrUnsupported (no cgroup2),
// EROFS, EACCES, EEXIST. The caller ends it with Remove, or with Close where the
// directory has to stay.
func NewCgroup(name string) (*Cgroup, error) {
	h, err := FindCgroup()
	if err != nil {
		return nil, err
	}
	return h.New(name)
}

// New is NewCgroup with what FindCgroup found before.
func (h CgroupHome) New(name string) (*Cgroup, error) {
	if !strings.HasPrefix(name, CgroupPrefix) {
		name = CgroupPrefix + name
	}
	if name == CgroupPrefix || strings.ContainsAny(name, "./\x00\n") {
		return nil, fmt.Errorf("create cgroup %q: not a plain name: %w", name, unix.EINVAL)
	}
	if h.Base == "" {
		return nil, noCgroup("none was found")
	}
	path := h.Base + "/" + name
	for range 3 { // a Sweep may take it away between mkdir and lock
		switch err := unix.Mkdir(path, 0o755); err {
		case nil:
		case unix.EROFS, unix.EACCES, unix.EPERM:
			return nil, fmt.Errorf("create cgroup %s: %s: %w", path, cgroupReason(h.Base), err)
		default:
			return nil, fmt.Errorf("create cgroup %s: %w", path, err)
		}
		c, err := OpenCgroup(path)
		if !errors.Is(err, ErrGone) {
			if err != nil {
				unix.Rmdir(path)
			}
			return c, err
		}
	}
	return nil, fmt.Errorf("create cgroup %s: removed by another process: %w", path, unix.EAGAIN)
}

// OpenCgroup opens a cgroup that exists already, as a guard or a new supervisor
// does. ErrGone when there is none at path.
func OpenCgroup(path string) (*Cgroup, error) {
	dir, err := openRetry(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return nil, cgroupErr("open", path, err)
	}
	// Non-blocking so that os.NewFile may put it into the poller (see WaitEmpty).
	events, err := unix.Openat(dir, "cgroup.events", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		if err = lockLive(dir, events, path); err != nil {
			unix.Close(events)
		}
	}
	if err != nil {
		unix.Close(dir)
		return nil, cgroupErr("open", path, err)
	}
	return &Cgroup{path: path, token: make(chan struct{}, 1), dir: dir, events: events}, nil
}

// lockLive takes the shared lock and makes sure that the directory is still the
// one at path: a Sweep that was faster has removed it. It waits at most for one
// Sweep's rmdir.
func lockLive(dir, events int, path string) error {
	for {
		err := unix.Flock(events, unix.LOCK_SH)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	var mine, now unix.Stat_t
	if err := unix.Fstat(dir, &mine); err != nil {
		return err
	}
	if err := unix.Stat(path, &now); err != nil {
		return err
	}
	if mine.Ino != now.Ino {
		return unix.ENOENT
	}
	return nil
}

// cgroupErr gives an error its place; a removed cgroup reads ENODEV.
func cgroupErr(op, path string, err error) error {
	switch err {
	case unix.ENOENT, unix.ENODEV:
		err = ErrGone
	}
	return fmt.Errorf("%s cgroup %s: %w", op, path, err)
}

// FD is the directory's descriptor, for SysProcAttr.UseCgroupFD and CgroupFD
// (clone3 CLONE_INTO_CGROUP, Linux 5.7). It belongs to the Cgroup; −1 after
// CloseFD, Close and Remove.
func (c *Cgroup) FD() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dir
}

// Path is the directory of the cgroup.
func (c *Cgroup) Path() string { return c.path }

// CloseFD gives the directory's descriptor back once the command is started;
// one descriptor (cgroup.events) is left open. Everything but FD works on.
func (c *Cgroup) CloseFD() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dir >= 0 {
		unix.Close(c.dir)
		c.dir = -1
	}
}

// Rest closes all descriptors of a cgroup whose command is started: where there
// are thousands, one each is too many. What needs one opens it again. Sweep is
// kept away only by the processes in it from then on: an empty one may vanish.
func (c *Cgroup) Rest() {
	c.CloseFD()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events >= 0 && c.file == nil {
		unix.Close(c.events)
		c.events, c.rests = -1, true
	}
}

// open sees to it that events is open. c.mu is held.
func (c *Cgroup) open() error {
	switch {
	case c.events >= 0:
		return nil
	case !c.rests:
		return ErrCgroupClosed
	}
	fd, err := openRetry(c.path+"/cgroup.events", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		return cgroupErr("open", c.path, err)
	}
	c.events, c.rests = fd, false
	return nil
}

// Close closes the descriptors, wakes WaitEmpty and leaves the directory and
// its processes alone. Closing twice does nothing.
func (c *Cgroup) Close() error {
	c.CloseFD()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rests = false
	if c.events < 0 {
		return nil
	}
	fd, file := c.events, c.file
	c.events, c.file = -1, nil
	if file != nil {
		return file.Close()
	}
	return unix.Close(fd)
}

// Populated reports whether a process is left in the cgroup or below it.
// Zombies do not count. It is one pread of cgroup.events. ErrGone after the
// directory was removed, ErrCgroupClosed after Close.
func (c *Cgroup) Populated() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open(); err != nil {
		return false, err
	}
	return c.populatedAt(c.events)
}

func (c *Cgroup) populatedAt(events int) (bool, error) {
	var buf [128]byte
	for {
		n, err := unix.Pread(events, buf[:], 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false, cgroupErr("read", c.path, err)
		}
		return !strings.Contains(string(buf[:n]), "populated 0"), nil
	}
}

// notifyInterval is how long the kernel holds back a second change of
// cgroup.events after a first one (CGROUP_FILE_NOTIFY_MIN_INTV, 10 ms).
const notifyInterval = 10 * time.Millisecond

// WaitEmpty returns nil once no process is left in the cgroup, now or later;
// context.Cause(ctx) when ctx ends first. ErrGone and ErrCgroupClosed as in
// Populated.
//
// It costs no thread: kernfs files can be in an epoll set and wake it at each
// change (as edges of EPOLLIN, which is always set), so Go's poller serves. As
// the kernel delays a change that follows another within 10 ms, the file is
// read again a few times within that span, and after it only when woken.
func (c *Cgroup) WaitEmpty(ctx context.Context) error {
	if populated, err := c.Populated(); err != nil || !populated {
		return err
	}
	select {
	case c.token <- struct{}{}:
		defer func() { <-c.token }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	file, err := c.pollable()
	if err != nil {
		return err
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		file.SetReadDeadline(time.Unix(1, 0))
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken
		}
	}()
	return c.waitEmpty(ctx, file)
}

func (c *Cgroup) waitEmpty(ctx context.Context, file *os.File) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch cgroup %s: %w", c.path, err)
	}
	var populated bool
	var readErr error
	look := func(fd uintptr) bool {
		populated, readErr = c.populatedAt(int(fd))
		return readErr != nil || !populated
	}
	for pause := notifyInterval / 40; ; pause *= 2 {
		var until time.Time // zero: no deadline, the change itself wakes
		if pause < 2*notifyInterval {
			until = time.Now().Add(pause)
		}
		if err := file.SetReadDeadline(until); err != nil {
			return c.watchErr(err)
		}
		if ctx.Err() != nil { // after the deadline was set: AfterFunc sets it later than this
			return context.Cause(ctx)
		}
		err := conn.Read(look)
		switch {
		case err == nil:
			return readErr
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return c.watchErr(err)
		}
	}
}

func (c *Cgroup) watchErr(err error) error {
	c.mu.Lock()
	closed := c.events < 0 // the poller's own error for that is not exported
	c.mu.Unlock()
	if closed {
		return ErrCgroupClosed
	}
	if errors.Is(err, os.ErrNoDeadline) {
		err = fmt.Errorf("cgroup.events cannot be polled: %w", errors.ErrUnsupported)
	}
	return fmt.Errorf("watch cgroup %s: %w", c.path, err)
}

// pollable puts cgroup.events into Go's poller at the first wait: a run whose
// tree ends with its leader never needs that.
func (c *Cgroup) pollable() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open(); err != nil {
		return nil, err
	}
	if c.file == nil {
		c.file = os.NewFile(uintptr(c.events), c.path+"/cgroup.events")
	}
	return c.file, nil
}
