package platform

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A Watch waits for an end, of a process that may be anybody's or of who reads
// what we write, in the netpoller. Close it.
type Watch struct {
	f    *os.File
	done chan struct{}
}

// WatchProcess watches the process of an identity; ErrGone when it has ended.
func WatchProcess(id Identity) (*Watch, error) {
	fd, err := OpenPidfd(id.PID)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	if id.Liveness() != Live { // looked at after opening: the number is not a stranger's
		f.Close()
		return nil, fmt.Errorf("watch process %d: %w", id.PID, ErrGone)
	}
	w, err := watchReadable(f)
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", id.PID, err)
	}
	return w, nil
}

// watchReadable waits until a pollable descriptor is readable. It owns f.
func watchReadable(f *os.File) (*Watch, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	w := &Watch{f: f, done: make(chan struct{})}
	go func() { // ends with what is watched, or at Close
		if raw.Read(readable) == nil {
			close(w.done)
		}
	}()
	return w, nil
}

// readable reports whether a descriptor can be read now, without waiting.
func readable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}

// Done is closed when what is watched has ended. It stays open after Close.
func (w *Watch) Done() <-chan struct{} { return w.done }

// Close ends the watch.
func (w *Watch) Close() { w.f.Close() }

// SamePIDs reports whether a process sees the same process numbers as we do.
func SamePIDs(pid int) bool {
	ours, err1 := os.Readlink("/proc/self/ns/pid")
	theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return err1 == nil && err2 == nil && ours == theirs // pid_namespaces(7)
}
