//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stateOf is the state letter of a process, 0 when it is gone. A zombie counts
// as gone everywhere in these tests: it runs nothing and holds nothing.
func stateOf(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// proc(5): the command, field 2, may hold blanks and parentheses.
	if i := bytes.LastIndexByte(stat, ')'); i >= 0 && i+2 < len(stat) {
		return stat[i+2]
	}
	return 0
}

func alive(pid int) bool {
	switch stateOf(pid) {
	case 0, 'Z', 'X':
		return false
	}
	return true
}

// waitGone waits until the process has ended or the time is over, woken by its
// end, and reports whether it has.
func waitGone(pid int, within time.Duration) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return !alive(pid)
	}
	defer unix.Close(fd)
	for end := time.Now().Add(within); alive(pid); {
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		unix.Poll(poll, int(left.Milliseconds())+1) // EINTR: look again
	}
	return true
}

func commandOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

func pids() (all []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// marked are the living processes whose environment holds the mark, whoever
// their parent is.
func marked(mark string) (found []int) {
	for _, pid := range pids() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && bytes.Contains(env, []byte(mark)) && alive(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// leftBehind names what still carries the mark once it has had the time to
// end; the ends are waited for, not polled.
func leftBehind(mark string, within time.Duration) (left []string) {
	end := time.Now().Add(within)
	for _, pid := range marked(mark) {
		if !waitGone(pid, time.Until(end)) {
			left = append(left, fmt.Sprintf("%d (%s)", pid, commandOf(pid)))
			unix.Kill(pid, unix.SIGKILL) // the next test must not suffer from it
		}
	}
	return left
}

// adopted are our living children: at the end all that was ever orphaned under
// us and still runs, with or without an environment to know it by.
func adopted() (left []string) {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		b, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		for _, f := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(f)
			if !waitGone(pid, 2*time.Second) {
				left = append(left, fmt.Sprintf("%d (%s)", pid, commandOf(pid)))
				unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	return left
}

// pidsIn reads the first field of every line of a file.
func pidsIn(data []byte) (found []int, err error) {
	for _, line := range strings.Split(string(data), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		pid, err := strconv.Atoi(f[0])
		if err != nil {
			return nil, err
		}
		found = append(found, pid)
	}
	if len(found) == 0 {
		err = fmt.Errorf("no pid in it")
	}
	return found, err
}
