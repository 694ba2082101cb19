package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// members are the processes of a tree, each held by a pidfd.
type members map[string]int

// membersOf waits until the leader has written its pid, which it does last.
func membersOf(dir string) (members, error) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "leader")); err == nil {
			break
		}
		if time.Now().After(end) {
			return nil, errors.New("the tree did not come up")
		}
	}
	m := members{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		pid, err := strconv.Atoi(string(text))
		if err != nil {
			return nil, err
		}
		if m[e.Name()], err = unix.PidfdOpen(pid, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return m, nil
}

// alive are the members that have not ended.
func (m members) alive() (names []string) {
	for name, fd := range m {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(poll, 0); n == 0 {
			names = append(names, name)
		}
	}
	return names
}

// watch follows the members until all are gone and the call has returned, or
// the time is over; then it ends what is left.
func (m members) watch(start time.Time, ended <-chan time.Duration) outcome {
	o := outcome{gone: -1, returned: -1}
	for time.Since(start) < watch && (o.gone < 0 || o.returned < 0) {
		select {
		case o.returned = <-ended:
			o.early = m.alive()
		default:
			time.Sleep(100 * time.Microsecond)
		}
		if o.gone < 0 && len(m.alive()) == 0 {
			o.gone = time.Since(start)
		}
	}
	o.left = m.alive()
	for _, fd := range m {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		unix.Close(fd)
	}
	for _, name := range o.left { // named once, as left
		o.early = without(o.early, name)
	}
	return o
}

func without(names []string, name string) (rest []string) {
	for _, n := range names {
		if n != name {
			rest = append(rest, n)
		}
	}
	return rest
}

// makeCgroup makes a cgroup v2 to kill in, where we may.
func makeCgroup() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return os.MkdirTemp(f[1], "bench-")
		}
	}
	return "", errors.New("no cgroup v2 here")
}

func cgroupsWork() bool {
	dir, err := makeCgroup()
	if err == nil {
		os.Remove(dir)
	}
	return err == nil
}
