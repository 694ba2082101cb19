package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// run finds a run in a hand-over.
func (rep report) run(t testing.TB, id string) reportRun {
	t.Helper()
	for _, r := range rep.Runs {
		if r.ID == id {
			return r
		}
	}
	t.Fatalf("no run %s in the hand-over of generation %d: %+v", id, rep.Generation, rep.Runs)
	return reportRun{}
}

// gate is a named pipe that a command reads one line from.
func gate(t testing.TB) (path string, open func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return path, func() { fmt.Fprintln(f, "go") }
}

// awaitEnd waits until a process is a zombie or gone.
func awaitEnd(t testing.TB, pid int) {
	t.Helper()
	fd, err := platform.OpenPidfd(pid)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	await(t, fd, unix.POLLIN)
}

// awaitReaped waits until a process was reaped (POLLHUP, Linux 6.9).
func awaitReaped(t testing.TB, pidfd int) {
	t.Helper()
	await(t, pidfd, unix.POLLHUP)
}

func await(t testing.TB, fd int, events int16) {
	t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		if events == unix.POLLHUP {
			p[0].Events = 0
		}
		if _, err := unix.Poll(p, 1000); err == nil && p[0].Revents&events != 0 {
			return
		}
	}
	_, file, line, _ := runtime.Caller(2)
	t.Fatalf("%s:%d: the process does not end", filepath.Base(file), line)
}

// listFDs is what a process has open, without numbers that differ each time.
func listFDs(t testing.TB, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		to, err := os.Readlink(dir + e.Name())
		if err == nil && !strings.Contains(to, "/zoneinfo/") { // read once, when the first line is logged
			kind, _, _ := strings.Cut(to, "[")
			if strings.HasPrefix(to, "anon_inode") {
				kind = to
			}
			out = append(out, kind)
		}
	}
	slices.Sort(out)
	return out
}
