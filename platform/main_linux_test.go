package platform

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var helpers = map[string]func([]string) int{
	"hang":     hang,
	"nest":     nest,
	"own":      ownCgroup,
	"forker":   forker,
	"mounts":   otherMount,
	"newas":    newAs,
	"die":      die,
	"leader":   ttyLeader,
	"ttychild": ttyChild,
	"notty":    noTTY,
	"examine":  examineHelper,
	"dial":     dial,
}

// leftovers says what this process holds: descriptors, children, cgroups.
func leftovers() string {
	var out []string
	for _, fd := range numericEntries("/proc/self/fd") {
		to, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
		if err == nil && !strings.HasPrefix(to, "anon_inode:[event") { // Go's poller, made at first use
			out = append(out, fmt.Sprint("fd ", fd, " ", to))
		}
	}
	for _, pid := range Children(os.Getpid()) {
		out = append(out, fmt.Sprint("child ", pid))
	}
	if h, err := FindCgroup(); err == nil {
		entries, _ := os.ReadDir(h.Base)
		for _, e := range entries {
			if strings.Contains(e.Name(), fmt.Sprint("-t", os.Getpid(), "-")) {
				out = append(out, "cgroup "+e.Name())
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: namespaces, other users")
	}
}
