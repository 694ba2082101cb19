package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var cgroupCount atomic.Int64

// testName is unique; leftovers finds it by the pid.
func testName() string {
	return fmt.Sprintf("t%d-%d", os.Getpid(), cgroupCount.Add(1))
}

// newCgroup makes a cgroup or skips the test; Cleanup kills what is in it.
func newCgroup(t testing.TB) *Cgroup {
	t.Helper()
	c, err := NewCgroup(testName())
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, c) })
	return c
}

func destroy(t testing.TB, c *Cgroup) {
	if err := c.Kill(); err != nil && !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if err := c.WaitEmpty(context.Background()); err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrCgroupClosed) {
		t.Error(err)
	}
	if err := c.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after Remove: %v", c.Path(), err)
	}
}

// into makes cmd start inside c.
func into(c *Cgroup, cmd *exec.Cmd) *exec.Cmd {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, c.FD()
	return cmd
}

func wantPopulated(t *testing.T, c *Cgroup, want bool) {
	t.Helper()
	if got, err := c.Populated(); err != nil || got != want {
		t.Errorf("populated %v, %v; want %v", got, err, want)
	}
}

func TestCgroupLife(t *testing.T) {
	t.Parallel()
	c := newCgroup(t)
	wantPopulated(t, c, false)
	if err := c.WaitEmpty(t.Context()); err != nil {
		t.Errorf("wait for an empty one: %v", err)
	}
	cmd := into(c, helperCmd(t, "hang"))
	startReady(t, cmd)
	c.CloseFD()
	if c.FD() != -1 {
		t.Errorf("FD is %d after CloseFD", c.FD())
	}
	wantPopulated(t, c, true)
	if got, err := c.Procs(); err != nil || !slices.Equal(got, []int{cmd.Process.Pid}) {
		t.Errorf("procs %v, %v; want %d", got, err, cmd.Process.Pid)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	waits := make(chan error, 2)
	for range 2 { // two at once: one polls, the other waits for its turn
		go func() { waits <- c.WaitEmpty(ctx) }() // ends with ctx; read below
	}
	cancel(why)
	for range 2 {
		if err := <-waits; err != why {
			t.Errorf("cancelled wait: %v, want its cause", err)
		}
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitEmpty(t.Context()); err != nil { // also after a wait that was cancelled
		t.Fatal(err)
	}
	wantPopulated(t, c, false) // the zombie does not count
	cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != unix.SIGKILL {
		t.Errorf("child ended with %v", cmd.ProcessState)
	}
	if err := c.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Populated(); err != ErrCgroupClosed {
		t.Errorf("populated after Remove: %v", err)
	}
	if err := c.WaitEmpty(t.Context()); err != ErrCgroupClosed {
		t.Errorf("wait after Remove: %v", err)
	}
	if _, err := OpenCgroup(c.Path()); !errors.Is(err, ErrGone) {
		t.Errorf("open after Remove: %v", err)
	}
}

// A context ends a wait whenever it ends: before, at the start, or when the
// waiter sleeps until woken.
func TestContextEndsWaitEmpty(t *testing.T) {
	t.Parallel()
	c := newCgroup(t)
	startReady(t, into(c, helperCmd(t, "hang")))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := c.WaitEmpty(ended); err != context.Canceled {
			t.Fatalf("with an ended context: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*notifyInterval) // past the rereads
	defer cancel()
	if err := c.WaitEmpty(ctx); err != context.DeadlineExceeded {
		t.Errorf("until the deadline: %v", err)
	}
}

// A wait that begins while processes come and go is woken by the last one,
// though the kernel tells of changes at most every 10 ms.
func TestWaitEmptySeesShortLives(t *testing.T) {
	t.Parallel()
	c := newCgroup(t)
	for range 20 {
		cmd := into(c, helperCmd(t, "hang"))
		if err := cmd.Start(); err != nil { // no stdin: it ends at once
			t.Fatal(err)
		}
		if err := c.WaitEmpty(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantPopulated(t, c, false)
		cmd.Wait()
	}
}

func TestCloseWakesWaitEmpty(t *testing.T) {
	t.Parallel()
	c := newCgroup(t)
	startReady(t, into(c, helperCmd(t, "hang")))
	for watching := range 20 { // the first closes at once, the others while it watches
		o, err := OpenCgroup(c.Path())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- o.WaitEmpty(context.Background()) }() // Close ends it; read below
		for inPoller := false; watching > 0 && !inPoller; runtime.Gosched() {
			o.mu.Lock()
			inPoller = o.file != nil
			o.mu.Unlock()
		}
		o.Close()
		if err := <-done; err != ErrCgroupClosed {
			t.Errorf("wait while closed: %v", err)
		}
	}
}

func TestWaitEmptyCostsNoThread(t *testing.T) {
	const waiters = 100
	threads := func() int { return len(numericEntries("/proc/self/task")) }
	var group sync.WaitGroup
	cgroups := make([]*Cgroup, waiters)
	keep := newCgroup(t)
	startReady(t, into(keep, helperCmd(t, "hang"))) // so that no one is empty: all watch the same directory
	for i := range cgroups {
		c, err := OpenCgroup(keep.Path())
		if err != nil {
			t.Fatal(err)
		}
		cgroups[i] = c
	}
	before := threads()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, c := range cgroups {
		group.Add(1)
		go func() { // ends when the cgroup is empty; group waits for it
			defer group.Done()
			if err := c.WaitEmpty(ctx); err != nil {
				t.Error(err)
			}
		}()
	}
	for _, c := range cgroups {
		for len(c.token) == 0 { // taken: it watches
			runtime.Gosched()
		}
	}
	if after := threads(); after > before+10 {
		t.Errorf("%d threads before, %d with %d waiters", before, after, waiters)
	}
	if err := keep.Kill(); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	for _, c := range cgroups {
		c.Close()
	}
}

// forker leaves its session, and forks a child that does so too.
func forker(args []string) int {
	if len(args) == 0 {
		fmt.Println("ready")
		return hang(nil)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"=forker")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	return hang(nil)
}

func TestCgroupKills(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(*Cgroup) error{
		"cgroup.kill": (*Cgroup).Kill,
		"each":        (*Cgroup).killEach, // Linux before 5.14
		"frozen": func(c *Cgroup) error {
			if err := c.Freeze(true); err != nil {
				return err
			}
			return c.Kill()
		},
		"frozen, each": func(c *Cgroup) error {
			if err := c.Freeze(true); err != nil {
				return err
			}
			return c.killEach()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCgroup(t)
			startReady(t, into(c, helperCmd(t, "forker 1")))
			if err := kill(c); err != nil {
				t.Fatal(err)
			}
			if err := c.WaitEmpty(t.Context()); err != nil {
				t.Fatal(err)
			}
			if pids, err := c.Procs(); err != nil || len(pids) != 0 {
				t.Errorf("left: %v, %v", pids, err)
			}
			if frozen := readLine(c.Path() + "/cgroup.freeze"); name == "each" && frozen != "0" {
				t.Errorf("cgroup.freeze is %q afterwards", frozen)
			}
		})
	}
}

// nest is a procsup inside a procsup: it makes a cgroup below the one it is in.
func nest([]string) int {
	c, err := NewCgroup("inner")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	cmd := into(c, exec.Command("/proc/self/exe"))
	cmd.Env = append(os.Environ(), helperEnv+"=hang")
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	cmd.Wait()
	return 0
}

func TestNestedCgroup(t *testing.T) {
	t.Parallel()
	c := newCgroup(t)
	cmd := into(c, helperCmd(t, "nest"))
	if got := startReady(t, cmd); got != "ready" {
		t.Fatal(got)
	}
	pids, err := c.Procs()
	if err != nil || len(pids) != 2 || !slices.Contains(pids, cmd.Process.Pid) {
		t.Errorf("procs %v, %v; want %d and its child", pids, err, cmd.Process.Pid)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitEmpty(t.Context()); err != nil {
		t.Fatal(err)
	}
	// destroy checks that the directory below goes too
}

func TestRemoveRefusesTheLiving(t *testing.T) {
	t.Parallel()
	c := newCgroup(t)
	startReady(t, into(c, helperCmd(t, "hang")))
	o, err := OpenCgroup(c.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Remove(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("remove with a process in it: %v", err)
	}
	if o.FD() != -1 || o.events != -1 {
		t.Error("descriptors are open after a failed Remove")
	}
}

func TestNewCgroupNames(t *testing.T) {
	t.Parallel()
	c := newCgroup(t)
	name := c.Path()[strings.LastIndexByte(c.Path(), '/')+1:]
	if !ourCgroup(name) {
		t.Errorf("%s is not taken for ours", name)
	}
	if _, err := NewCgroup(name); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a second %s: %v", name, err)
	}
	for _, bad := range []string{"", CgroupPrefix, "a/b", "..", "x.scope", "a\nb"} {
		if _, err := NewCgroup(bad); !errors.Is(err, unix.EINVAL) {
			t.Errorf("name %q: %v", bad, err)
		}
	}
}

func TestMemoryPeak(t *testing.T) {
	t.Parallel()
	c := newCgroup(t)
	switch n, err := c.MemoryPeak(); {
	case errors.Is(err, errors.ErrUnsupported):
		if _, err := os.Stat(c.Path() + "/memory.peak"); err == nil {
			t.Error("memory.peak exists")
		}
	case err != nil || n < 0:
		t.Errorf("peak %d, %v", n, err)
	}
}
