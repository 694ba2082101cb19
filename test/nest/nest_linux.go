// Package nest puts a test process into a cgroup of its own, so that the
// cgroups which procsup makes under it can be told from everybody else's.
package nest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Nest is the cgroup that this process is in. The zero Nest is none.
type Nest struct {
	dir, home string
}

// Enter makes a cgroup below the one we are in and moves there. Where that is
// not allowed it returns an empty Nest: procsup cannot make cgroups either.
func Enter() *Nest {
	home := own()
	if home == "" {
		return &Nest{}
	}
	dir, err := os.MkdirTemp(home, "test-")
	if err != nil {
		return &Nest{}
	}
	n := &Nest{dir: dir, home: home}
	if move(dir) != nil {
		os.Remove(dir)
		return &Nest{}
	}
	return n
}

// Leave moves back and removes the cgroup. It returns what is left in it:
// cgroups that nobody removed, with an empty one marked so.
func (n *Nest) Leave() (left []string) {
	if n.dir == "" {
		return nil
	}
	left = n.Left()
	move(n.home)
	for _, dir := range left {
		os.Remove(dir)
	}
	os.Remove(n.dir)
	return left
}

// Left are the cgroups below ours.
func (n *Nest) Left() []string {
	if n.dir == "" {
		return nil
	}
	var left []string
	entries, _ := os.ReadDir(n.dir)
	for _, e := range entries {
		if e.IsDir() {
			left = append(left, filepath.Join(n.dir, e.Name()))
		}
	}
	return left
}

func move(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// own is the folder of our cgroup v2, wherever it is mounted; empty if none.
func own() string {
	mine, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for _, line := range strings.Split(string(mounts), "\n") {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		for _, l := range bytes.Split(mine, []byte("\n")) {
			if path, ok := bytes.CutPrefix(l, []byte("0::")); ok {
				return filepath.Join(f[1], string(path))
			}
		}
	}
	return ""
}
