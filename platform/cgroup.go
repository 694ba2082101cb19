package platform

import (
	"errors"
	"strings"
)

// CgroupPrefix begins the name of every cgroup that procsup makes, so that a
// stale one can be told from everybody else's.
const CgroupPrefix = "procsup-"

// ErrCgroupClosed is returned by calls on a Cgroup after Remove or Close.
var ErrCgroupClosed = errors.New("cgroup is closed")

// A CgroupHome is where in cgroup v2 this process stands: what FindCgroup
// found out without changing anything.
type CgroupHome struct {
	Mount    string // directory where cgroup2 is mounted
	Root     string // the cgroup that Mount shows: "/" unless in a container or bind mount
	Path     string // our own cgroup, as in /proc/self/cgroup
	Self     string // directory of our own cgroup
	Base     string // directory in which new cgroups are made
	Writable bool   // whether Base takes new cgroups and new processes of ours
	Reason   string // why not Writable, for people; "" when it is
}

// ourCgroup reports whether a directory name is one that procsup made. Units of
// systemd end in .service, .scope or .slice; our names have no dot.
func ourCgroup(name string) bool {
	return strings.HasPrefix(name, CgroupPrefix) && !strings.Contains(name, ".")
}

// Outside is the directory of the nearest cgroup above Self that no procsup run
// made: where a daemon started inside a run has to go so that the run's end
// does not end it. It is Self when Self is not below a run.
func (h CgroupHome) Outside() string {
	rel := strings.TrimPrefix(h.Self, h.Mount)
	for at := 0; at < len(rel); {
		end := len(rel)
		if i := strings.IndexByte(rel[at+1:], '/'); i >= 0 {
			end = at + 1 + i
		}
		if ourCgroup(rel[at+1 : end]) {
			return h.Mount + rel[:at]
		}
		at = end
	}
	return h.Self
}
