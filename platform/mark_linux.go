package platform

import (
	"bytes"
	"math"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// A mark is a number that a process has from its birth and passes on to all
// its descendants. Unlike a variable in the environment it can still be read
// when the process is a zombie, after `env -i`, and of other users' processes.
// It is the soft limit RLIMIT_LOCKS, which Linux keeps, shows in
// /proc/PID/limits and has not looked at since 2.4.25, getrlimit(2).

var marking sync.Mutex // the limit is this process's, children copy it in clone(2)

// MarkChildren runs start, which starts a process, so that this has the mark;
// other processes started meanwhile have it too. Calls wait for each other. It
// reports whether there was a mark: not where the hard limit is lower.
func MarkChildren(mark uint64, start func()) bool {
	marking.Lock()
	defer marking.Unlock()
	var old unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_LOCKS, &old) != nil || unix.Setrlimit(unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: mark, Max: old.Max}) != nil {
		start()
		return false
	}
	defer unix.Setrlimit(unix.RLIMIT_LOCKS, &old)
	start()
	return true
}

// DropMark frees this process and what it starts from a mark that it was born
// with.
func DropMark() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_LOCKS, &l) == nil {
		_ = unix.Setrlimit(unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: l.Max, Max: l.Max})
	}
}

// MarkOf reads the mark of a process; 0: it has none, or is gone.
func MarkOf(pid int) uint64 {
	b, err := readFile("/proc/"+strconv.Itoa(pid)+"/limits", make([]byte, 2048))
	if err != nil {
		return 0
	}
	_, b, ok := bytes.Cut(b, []byte("Max file locks"))
	f := bytes.Fields(b[:min(len(b), 64)])
	if !ok || len(f) == 0 {
		return 0
	}
	n, err := strconv.ParseUint(string(f[0]), 10, 64) // or "unlimited"
	if err != nil || n == math.MaxUint64 {
		return 0
	}
	return n
}

// NeverExecuted reports whether a process, or zombie, has not executed a
// program since it was forked: it runs its parent's. (PF_FORKNOEXEC in the
// flags of proc(5) stat, field 9.)
func NeverExecuted(pid int) bool { return hasFlag(pid, 0x40) }

// Exiting reports whether a process is on its way to be a zombie: its memory may
// be gone already, and its environment with it, its children are not ours yet.
// (PF_EXITING in the flags of proc(5) stat, field 9.)
func Exiting(pid int) bool { return hasFlag(pid, 0x4) }

// Dying reports whether a process that was sent SIGKILL needs but a processor to
// end: it is exiting or gone already, or runnable (field 3 of proc(5) stat). What
// waits without being woken by SIGKILL, state D, may do so for ever.
func Dying(pid int) bool {
	f := statFields(pid)
	return len(f) == 0 || string(f[0]) == "R" || Exiting(pid)
}

func hasFlag(pid int, flag uint64) bool {
	f := statFields(pid)
	if len(f) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(f[6]), 10, 64)
	return err == nil && flags&flag != 0
}

// BetweenStarts runs f while no start of MarkChildren is under way, and none
// begins before f has returned.
func BetweenStarts(f func()) {
	marking.Lock()
	defer marking.Unlock()
	f()
}
