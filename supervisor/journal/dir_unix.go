//go:build unix

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"procsup/handles"
)

const openNoFollow = unix.O_NOFOLLOW

// checkOwner refuses what belongs to another user, root's own use of it too:
// it would leave files there that its owner cannot write.
func checkOwner(path string, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == os.Geteuid() {
		return nil
	}
	return &handles.Error{
		Code:    handles.CodeNotOwner,
		Message: fmt.Sprintf("%s belongs to uid %d, not to uid %d", path, st.Uid, os.Geteuid()),
		ID:      path,
		Hint:    "choose another state directory with --state",
	}
}

// Lock takes the state directory for this process and whoever inherits the file:
// flock(2) on DIR/lock, until every descriptor of it is closed. The directory is
// made if missing. When another has it the error is handles.ErrLocked and names
// the process, as far as that is known; the file's content is only information.
func Lock(dir string) (*os.File, error) { return lock(dir, lockFile) }

// LockWhenFree is Lock that waits for whoever has it, without end.
func LockWhenFree(dir string) (*os.File, error) {
	return lock(dir, func(f *os.File) error {
		for {
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				return errors.Join(err, lockFile(f))
			}
		}
	})
}

// LockedBy is the process that took the lock, as far as that is known; 0: it is
// not. It need not be there any more.
func LockedBy(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, "lock"))
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(b, []byte("\n")) // more may follow that was there before
	pid, _ := strconv.Atoi(string(bytes.TrimSpace(line)))
	return pid
}

func lock(dir string, take func(*os.File) error) (*os.File, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600) // Go adds O_CLOEXEC
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := take(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// LockAgain is for a process that goes on with a descriptor of the lock that
// another took: it makes the file name this process.
func LockAgain(f *os.File) error { return lockFile(f) }

func lockFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("lock: %s is not a regular file", f.Name())
	}
	if err := checkOwner(f.Name(), info); err != nil {
		return err
	}
	switch err := flock(f); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return locked(f)
	case err != nil:
		return fmt.Errorf("lock %s: %w: %w", f.Name(), ErrFileSystem, err)
	}
	_ = nameHolder(f) // information only: a full disk does not matter
	return nil
}

// NameHolder makes the lock file name this process, which is about to hold it: a
// client that knows of no daemon looks there whether one is about to answer.
func NameHolder(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return nameHolder(f)
}

// nameHolder writes a line that is always as long, so that who reads meanwhile
// sees the number before or the new one.
func nameHolder(f *os.File) error {
	line := fmt.Sprintf("%-10d\n", os.Getpid())
	if _, err := f.WriteAt([]byte(line), 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(line)))
}

func flock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func locked(f *os.File) error {
	e := &handles.Error{
		Code:    handles.CodeLocked,
		Message: "another daemon uses " + filepath.Dir(f.Name()),
		ID:      filepath.Dir(f.Name()),
		Hint:    "choose another state directory with --state",
	}
	text := make([]byte, 20)
	n, err := f.ReadAt(text, 0)
	if pid, perr := strconv.Atoi(string(bytes.TrimSpace(text[:n]))); perr == nil && (err == nil || err == io.EOF) {
		e.Message += fmt.Sprintf(" (process %d)", pid)
	}
	return e
}

// probe finds out whether flock(2) and shared memory work in dir, by using them
// once. No room for the probe proves nothing, and is no reason to refuse.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return ignoreFull(err)
	}
	defer f.Close()
	defer os.Remove(f.Name())
	again, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer again.Close()
	return fitFor(dir, probeLock(f, again), ignoreFull(probeMap(f, again)))
}

// fitFor says why a file system cannot be used; nil errors mean it can.
func fitFor(dir string, lock, shared error) error {
	switch {
	case lock != nil:
		return fmt.Errorf("%s (%s): %w: flock: %w", dir, fsName(dir), ErrFileSystem, lock)
	case shared != nil:
		return fmt.Errorf("%s (%s): %w: shared memory: %w", dir, fsName(dir), ErrFileSystem, shared)
	}
	return nil
}

func ignoreFull(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil
	}
	return err
}

// fullDisk says what SQLite does not when there was no room for its files.
func fullDisk(dir string, err error) error {
	var st unix.Statfs_t
	if !passing(err) || unix.Statfs(dir, &st) != nil || st.Bavail*uint64(st.Bsize) >= 256<<10 {
		return err
	}
	return fmt.Errorf("no room to open it: the disk of %s is full, make room and start again: %w: %w", dir, unix.ENOSPC, err)
}

var errNoEffect = errors.New("it has no effect")

func probeLock(f, again *os.File) error {
	if err := flock(f); err != nil {
		return err
	}
	switch err := flock(again); {
	case err == nil:
		return errNoEffect
	case !errors.Is(err, unix.EWOULDBLOCK):
		return err
	}
	return nil
}

// probeMap writes through one mapping and reads through another.
func probeMap(f, again *os.File) error {
	if _, err := f.WriteAt(make([]byte, 4096), 0); err != nil { // so that a full disk is an error and no SIGBUS
		return err
	}
	a, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(a)
	b, err := unix.Mmap(int(again.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(b)
	if a[17] = 'x'; b[17] != 'x' {
		return errNoEffect
	}
	return nil
}
