//go:build linux

package chaos

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"path/filepath"
)

// alive says whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	return len(rest) > 1 && rest[1] != 'Z' && rest[1] != 'X'
}

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
		unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
	}
	return true
}

func commandOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

// before are the cgroups that somebody else left.
var before = map[string]bool{}

func init() {
	for _, path := range emptyCgroups() {
		before[path] = true
	}
}

// emptyCgroups are cgroups of procsup that nobody is in.
func emptyCgroups() (left []string) {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for _, line := range strings.Split(string(mounts), "\n") {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		found, _ := filepath.Glob(f[1] + "/*procsup*")
		for _, path := range found {
			events, err := os.ReadFile(path + "/cgroup.events")
			if err == nil && bytes.Contains(events, []byte("populated 0")) && !before[path] {
				left = append(left, path)
			}
		}
	}
	return left
}
