// Package pgroup starts a command in a process group of its own, signals it,
// ends its whole tree and reaps it. It runs inside any Go program: it never
// waits for a process it did not start unless it is given a [Subreaper].
package pgroup

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"procsup/platform"
)

// A Level is how surely the whole tree of a command is held.
type Level string

// The containment ladder, best first. The zero Level is Auto.
const (
	Auto   Level = ""       // the best that works here
	Cgroup Level = "cgroup" // a control group of its own: nothing can leave it by fork, setsid or daemonising
	Tree   Level = "tree"   // descendants, and orphans adopted as a subreaper
	Grp    Level = "group"  // the process group alone: a process that left it is out of reach
)

// ParseLevel reads auto, cgroup, tree or group.
func ParseLevel(s string) (Level, error) {
	switch l := Level(s); l {
	case "auto", Auto:
		return Auto, nil
	case Cgroup, Tree, Grp:
		return l, nil
	}
	return "", fmt.Errorf("unknown containment %q (auto, cgroup, tree, group)", s)
}

// A Leftover says what becomes of processes that outlive their leader when it
// ended by itself. The zero Leftover is Kill.
type Leftover string

// The leftover policies.
const (
	Kill Leftover = "kill" // end them by the ladder and list them
	Wait Leftover = "wait" // the run lasts until they are gone
	Keep Leftover = "keep" // list them and leave them alone
)

// ParseLeftover reads kill, wait or keep.
func ParseLeftover(s string) (Leftover, error) {
	switch l := Leftover(s); l {
	case "":
		return Kill, nil
	case Kill, Wait, Keep:
		return l, nil
	}
	return "", fmt.Errorf("unknown leftover policy %q (kill, wait, keep)", s)
}

// A Command is what to run. Path is used as it is: nothing is looked up.
type Command struct {
	Path   string
	Args   []string // with Args[0]
	Env    []string // as given; empty means an empty environment
	Dir    string   // "" = the caller's
	Stdin  *os.File // nil = /dev/null, for each of the three; put into blocking mode unless it is our own 0, 1 or 2
	Stdout *os.File
	Stderr *os.File
	// Files are further descriptors, by their exact numbers from 3 to 255, put
	// into blocking mode too. Numbers between them are closed in the command.
	Files map[int]*os.File

	// Session makes the command the leader of a session of its own, without
	// a controlling terminal unless Terminal is set. Otherwise it only leads
	// a group in the caller's session.
	Session bool
	// Terminal makes Stdin, which must be a terminal, the controlling one.
	Terminal bool
	// ParentDeathSignal is what the kernel sends the command, and nobody below it,
	// when this process dies (PR_SET_PDEATHSIG, prctl(2): when the thread that
	// started it ends, which in Go does not happen before unless a goroutine stays
	// locked to it). 0 = nothing; Linux only.
	ParentDeathSignal syscall.Signal
}

// MaxFile is the highest number in Command.Files.
const MaxFile = 255

// A Config says how the tree is held. The zero Config works.
type Config struct {
	Containment Level
	// Token is put into the command's environment as PROCSUP_RUN, a hint by
	// which strays are recognised; "" sets none.
	Token string
	// Subreaper allows orphans that this process adopts to be counted to
	// the command and reaped. Needed for Tree.
	Subreaper *Subreaper
	// Mark gives the command a mark by which its descendants are recognised
	// whatever they do to their session, parent and environment: a random soft
	// RLIMIT_LOCKS (getrlimit(2)), a limit that Linux has not looked at since
	// 2.4.25 but keeps. Only at level Tree, which has nothing surer.
	Mark bool
	// BornWith is the mark of this kind that Start is called under, by the caller
	// (platform.MarkChildren), at any level; 0 = none.
	BornWith uint64
	// Many says that thousands of commands may live at once: each then holds
	// one descriptor while it runs, its pidfd.
	Many bool
	// CgroupName names the control group; "" = the token's last part, or a unique name.
	CgroupName string
}

// TokenVar is the environment variable that carries Config.Token.
const TokenVar = "PROCSUP_RUN"

// A Ladder says how a tree is stopped: Signal to the leader's group, TERM to
// members outside it once the leader is gone, KILL to all that is left when
// Grace is over, then at most Settle until the report. Grace is a maximum.
type Ladder struct {
	Signal syscall.Signal // 0 = TERM
	Grace  time.Duration  // 0 = 2 s; negative = none
	Settle time.Duration  // 0 = 250 ms
}

func (l Ladder) withDefaults() Ladder {
	if l.Signal == 0 {
		l.Signal = syscall.SIGTERM
	}
	if l.Grace == 0 {
		l.Grace = 2 * time.Second
	}
	if l.Settle == 0 {
		l.Settle = 250 * time.Millisecond
	}
	return l
}

// A Member is a live process of a command's tree.
type Member struct {
	PID        int
	StartTicks uint64
	Command    string
	Why        string // for a survivor: why it is still there
}

// To whom a signal went.
const (
	ToGroup  = "group"  // the leader's process group
	ToMember = "member" // one process outside that group
	ToCgroup = "cgroup" // everything in the control group at once
	ToLeader = "leader"
)

// A Sent is one signal that was sent, or tried.
type Sent struct {
	Signal syscall.Signal
	To     string
	PID    int
	At     time.Time
	Err    error
}

// A Report says what was done to end a tree and what is left of it.
type Report struct {
	Signals   []Sent
	Leftovers []Member // alive when the leader ended by itself
	Survivors []Member // alive at the end; empty means nothing is left
	Kept      bool     // they are leftovers that were to be left alone
}

// A StartError says at which step a command could not be started.
type StartError struct {
	Step string // chdir, exec, fork, cgroup
	Path string // what the step was about
	Err  error  // a syscall.Errno underneath
}

func (e *StartError) Error() string { return fmt.Sprintf("%s %s: %v", e.Step, e.Path, e.Err) }
func (e *StartError) Unwrap() error { return e.Err }

// ErrReaped says that the leader was reaped: its number may name a stranger
// now, so nothing is sent any more.
var ErrReaped = errors.New("command was reaped")

// An End is how the leader ended and what it used.
type End struct {
	platform.Exit
	Usage platform.Usage
}
