package platform

import (
	"os"
	"runtime"
)

// A Containment is how surely all processes of a run are found and ended.
type Containment string

// The levels, best first.
const (
	ByCgroup Containment = "cgroup" // cgroup v2: the kernel keeps the list, one write kills all
	ByTree   Containment = "tree"   // descendants and adopted orphans, by /proc and being a subreaper
	ByGroup  Containment = "group"  // the process group: what leaves it gets away
	ByChild  Containment = "child"  // only the direct child, best effort (Windows)
)

// A Feature is one thing that procsup makes use of, tried once.
type Feature struct {
	Name   string `json:"name"`           // stable, lower case with underscores
	OK     bool   `json:"ok"`             // whether it can be used here
	Detail string `json:"detail"`         // what was found, for people
	Hint   string `json:"hint,omitempty"` // how to get it; "" when OK or when there is no way
}

// Capabilities are what callers may rely on here. The names are part of the
// JSON interface (contract S2-21).
type Capabilities struct {
	GroupKill    bool `json:"group_kill"`    // a signal reaches the whole process group
	TreeKill     bool `json:"tree_kill"`     // processes that left the group are found and ended
	CgroupKill   bool `json:"cgroup_kill"`   // the kernel ends all at once
	Terminal     bool `json:"terminal"`      // commands can be given the controlling terminal
	CrashSafe    bool `json:"crash_safe"`    // output and ends survive a SIGKILL of the supervisor
	PeerIdentity bool `json:"peer_identity"` // the daemon knows who connects
}

// A Report is what Examine found.
type Report struct {
	OS           string       `json:"os"`
	Arch         string       `json:"arch"`
	Kernel       string       `json:"kernel"` // release; "" when not known
	Usable       bool         `json:"usable"` // false: procsup cannot work here at all
	Problems     []string     `json:"problems"`
	Containment  Containment  `json:"containment"` // the level in force
	Why          string       `json:"why"`         // why it is this one and no better
	Better       []string     `json:"better"`      // what to do for a better one; empty at the best
	Weaker       []string     `json:"weaker"`      // what this system does less well than Linux
	Capabilities Capabilities `json:"capabilities"`
	Features     []Feature    `json:"features"`
}

// A ProbeConfig says how to probe.
type ProbeConfig struct {
	// Helper is the command line of any program that does no harm: it is
	// started and killed at once. Nil leaves out what needs a child process.
	Helper []string
	// Dir is the folder whose file system is tried, such as the state folder.
	// Where it does not exist yet its nearest existing parent is taken. ""
	// means os.TempDir().
	Dir string
}

// Examine uses each feature once and says what it found. It takes some
// milliseconds, leaves no process, descriptor, file or cgroup behind, and
// signals nothing but its own helper.
func Examine(cfg ProbeConfig) Report {
	if cfg.Dir == "" {
		cfg.Dir = os.TempDir()
	}
	r := Report{
		OS: runtime.GOOS, Arch: runtime.GOARCH,
		Problems: []string{}, Better: []string{}, Weaker: []string{}, // [] and not null in JSON
	}
	examine(cfg, &r)
	r.Usable = len(r.Problems) == 0
	return r
}

// Feature looks a feature up by name; the zero Feature when it was not tried.
func (r Report) Feature(name string) Feature {
	for _, f := range r.Features {
		if f.Name == name {
			return f
		}
	}
	return Feature{}
}
