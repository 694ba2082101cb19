package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Procs lists the processes in the cgroup and in all cgroups below it, in no
// order, without zombies. Processes of another pid namespace are left out.
func (c *Cgroup) Procs() ([]int, error) {
	var pids []int
	err := walkCgroup(c.path, func(dir string) error {
		b, err := readFile(dir+"/cgroup.procs", make([]byte, 4096))
		switch err {
		case nil:
		case unix.ENOENT, unix.ENODEV:
			if dir != c.path {
				return nil // a nested one that was removed meanwhile
			}
			fallthrough
		default:
			return cgroupErr("list", dir, err)
		}
		for line := range strings.Lines(string(b)) {
			if pid, err := strconv.Atoi(strings.TrimSuffix(line, "\n")); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids, err
}

// walkCgroup calls f for every cgroup below dir, children first, then for dir.
func walkCgroup(dir string, f func(dir string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := walkCgroup(dir+"/"+e.Name(), f); err != nil {
				return err
			}
		}
	}
	return f(dir)
}

// Kill sends SIGKILL to every process in the cgroup and below it, frozen ones
// and ones that fork meanwhile included (cgroup.kill, Linux 5.14). On older
// kernels it freezes the tree and kills each member through its own pidfd;
// errors.ErrUnsupported where neither is possible. It does not wait: see
// WaitEmpty. ErrGone when the directory was removed.
func (c *Cgroup) Kill() error {
	err := writeCgroup(c.path+"/cgroup.kill", "1")
	if err == unix.ENOENT && unix.Access(c.path, unix.F_OK) == nil {
		return c.killEach()
	}
	if err != nil {
		return cgroupErr("kill", c.path, err)
	}
	return nil
}

// Freeze stops every process in the cgroup and below it from running, or lets
// it run on (cgroup.freeze, Linux 5.2). It does not wait until all have stopped.
func (c *Cgroup) Freeze(on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	if err := writeCgroup(c.path+"/cgroup.freeze", value); err != nil {
		return cgroupErr("freeze", c.path, err)
	}
	return nil
}

// writeCgroup writes a control file. It never creates one.
func writeCgroup(path, value string) error {
	fd, err := openRetry(path, unix.O_WRONLY|unix.O_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		_, err := unix.Write(fd, []byte(value))
		if err != unix.EINTR {
			return err
		}
	}
}

// killEach kills member by member until a round finds no new one. Frozen
// processes cannot fork, and SIGKILL reaches them (cgroup v2 freezer).
func (c *Cgroup) killEach() error {
	if c.Freeze(true) == nil {
		defer c.Freeze(false)
	}
	sent := map[int]int{} // pid to the pidfd that pins the answer to "again?"
	defer func() {
		for _, fd := range sent {
			unix.Close(fd)
		}
	}()
	var refused error
	for {
		fresh, err := c.openFresh(sent)
		if err != nil {
			return err
		}
		if len(fresh) == 0 {
			return refused
		}
		for pid, fd := range fresh {
			sent[pid] = fd
			if err := SignalPidfd(fd, syscall.SIGKILL); err != nil && !errors.Is(err, ErrGone) {
				refused = fmt.Errorf("kill cgroup %s: process %d: %w", c.path, pid, err)
			}
		}
	}
}

// openFresh opens a pidfd for each member that is not in known. A pid counts
// only when it is listed after the open as well: what the pidfd stands for was
// then in the cgroup, or is dead, and can be no stranger that took the number.
func (c *Cgroup) openFresh(known map[int]int) (map[int]int, error) {
	pids, err := c.Procs()
	if err != nil {
		return nil, err
	}
	open := map[int]int{}
	for _, pid := range pids {
		if _, ok := known[pid]; ok {
			continue
		}
		fd, err := OpenPidfd(pid)
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			closeAll(open)
			return nil, fmt.Errorf("kill cgroup %s without cgroup.kill: %v: %w", c.path, err, errors.ErrUnsupported)
		}
		open[pid] = fd
	}
	pids, err = c.Procs()
	if err != nil {
		closeAll(open)
		return nil, err
	}
	still := make(map[int]int, len(open))
	for _, pid := range pids {
		if fd, ok := open[pid]; ok {
			still[pid] = fd
			delete(open, pid)
		}
	}
	closeAll(open)
	return still, nil
}

func closeAll(fds map[int]int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// MemoryPeak is the most memory that the cgroup and those below it used at once,
// in bytes, page cache included (memory.peak, Linux 5.19, where the memory
// controller is enabled). errors.ErrUnsupported where the file is missing.
func (c *Cgroup) MemoryPeak() (int64, error) {
	b, err := readFile(c.path+"/memory.peak", make([]byte, 64))
	if err == unix.ENOENT {
		return 0, fmt.Errorf("cgroup %s: no memory.peak: %w", c.path, errors.ErrUnsupported)
	}
	if err != nil {
		return 0, cgroupErr("read memory.peak of", c.path, err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cgroup %s: memory.peak: %w", c.path, err)
	}
	return n, nil
}

// Remove removes the cgroups below it and then the directory, and closes the
// descriptors whatever comes of it. A process that is just ending is waited for
// shortly (50 ms at most); EBUSY when one is left. A directory that is gone
// already is no error, and a second Remove does nothing.
func (c *Cgroup) Remove() error {
	defer c.Close()
	err := removeTree(c.path)
	if err == unix.EBUSY {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if c.WaitEmpty(ctx) == nil {
			err = removeTree(c.path)
		}
	}
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", c.path, err)
	}
	return nil
}

// MoveOut moves every process that is left in it, and below it, to the cgroup
// above, where it would have been without this one, so that Remove can follow.
func (c *Cgroup) MoveOut() error {
	parent := filepath.Dir(c.path) + "/cgroup.procs"
	for range 100 { // a process may fork meanwhile
		pids, err := c.Procs()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			err := os.WriteFile(parent, strconv.AppendInt(nil, int64(pid), 10), 0)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move process %d out of cgroup %s: %w", pid, c.path, err)
			}
		}
	}
	return fmt.Errorf("move processes out of cgroup %s: %w", c.path, unix.EBUSY)
}

// removeTree tries plain rmdir first: the usual cgroup has none below it.
func removeTree(path string) error {
	err := unix.Rmdir(path)
	if err == unix.EBUSY {
		err = walkCgroup(path, func(dir string) error {
			if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
				return err
			}
			return nil
		})
	}
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// Sweep removes the empty cgroups in Base that procsup runs left behind when
// they were killed, and says how many. One that is open in a process (see
// Cgroup) or has a process in it is left alone. It costs one directory listing,
// and three system calls for each cgroup of ours.
func (h CgroupHome) Sweep() (removed int, err error) {
	if h.Base == "" {
		return 0, noCgroup("none was found")
	}
	entries, err := os.ReadDir(h.Base)
	if err != nil {
		return 0, fmt.Errorf("sweep cgroups: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && ourCgroup(e.Name()) && sweepOne(h.Base+"/"+e.Name()) {
			removed++
		}
	}
	return removed, nil
}

// sweepOne removes a stale cgroup with those of ours below it, under the lock
// that its owner would hold.
func sweepOne(path string) bool {
	fd, err := openRetry(path+"/cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	if unix.Rmdir(path) == nil {
		return true
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.IsDir() && ourCgroup(e.Name()) {
			sweepOne(path + "/" + e.Name())
		}
	}
	return unix.Rmdir(path) == nil
}

// EnterCgroup moves this whole process, all threads, into the cgroup directory
// dir, such as CgroupHome.Outside. It needs write access to dir and to the
// nearest cgroup above both (cgroups(7), delegation).
func EnterCgroup(dir string) error {
	if err := writeCgroup(dir+"/cgroup.procs", "0"); err != nil {
		return cgroupErr("move into", dir, err)
	}
	return nil
}
