package pgroup

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// A Remote names a command that another process started, for a process that
// has to end it without being its parent.
type Remote struct {
	PID     int
	Pidfd   int // taken over; opened by whoever could pin the number
	Session bool
	Cgroup  string // "" = none
	Token   string // "" = none
}

// OpenRemote makes a Group of a command of which this process is not the
// parent. Everything goes through pidfds, never through numbers, and its tree
// is found by scanning /proc. It cannot be reaped; how it ended is unknown.
func OpenRemote(r Remote) (*Group, error) {
	st, err := platform.ReadStat(r.PID)
	if err != nil && !errors.Is(err, platform.ErrGone) {
		return nil, err
	}
	g := &Group{pid: r.PID, remote: true, session: r.Session, token: r.Token, level: Tree, done: make(chan struct{}), seen: map[int]uint64{}}
	g.identity = platform.Identity{BootID: platform.BootID(), PID: r.PID, StartTicks: st.StartTicks}
	if r.Cgroup != "" {
		if g.cgroup, err = platform.OpenCgroup(r.Cgroup); err == nil {
			g.level = Cgroup
		}
	}
	if err := unix.SetNonblock(r.Pidfd, true); err != nil {
		return nil, fmt.Errorf("pidfd of command %d: %w", r.PID, err)
	}
	g.pidfd = os.NewFile(uintptr(r.Pidfd), "pidfd")
	go func() { // ends with the leader
		defer close(g.done)
		awaitPidfd(g.pidfd)
	}()
	return g, nil
}

// Release closes what OpenRemote opened and removes the control group if it
// is empty.
func (g *Group) Release() {
	if g.cgroup != nil {
		_ = g.cgroup.Remove()
	}
	g.pidfd.Close()
}

// sendRemote reaches the leader's group without its number: by one call since
// Linux 6.9, else member by member.
func (g *Group) sendRemote(sig syscall.Signal) error {
	rc, err := g.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	if err := rc.Control(func(fd uintptr) { sendErr = platform.SignalPidfdGroup(int(fd), sig) }); err != nil {
		return err
	}
	if sendErr == nil || errors.Is(sendErr, platform.ErrGone) {
		return sendErr
	}
	if !ended(g.done) {
		_ = rc.Control(func(fd uintptr) { sendErr = platform.SignalPidfd(int(fd), sig) })
	}
	for _, m := range g.members() {
		if m.PGID == g.pid {
			sendErr = signalMember(m, sig)
		}
	}
	return sendErr
}

// groupLives reports whether the number still names the command's own group:
// as long as one member is left it cannot be given to another.
func (g *Group) groupLives() bool {
	if !ended(g.done) {
		return true
	}
	rc, err := g.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	lives := true
	_ = rc.Control(func(fd uintptr) { lives = !errors.Is(platform.SignalPidfdGroup(int(fd), 0), platform.ErrGone) })
	return lives
}

// addRemote scans /proc for what belongs to a command of another process: its
// group and session, descendants, and carriers of its token.
func (f *finder) addRemote() {
	g := f.g
	all := map[int]platform.Stat{}
	platform.ScanProcesses(func(st platform.Stat) { all[st.PID] = st })
	lives := g.groupLives()
	ours := map[int]bool{g.pid: !ended(g.done)}
	for pid, st := range all {
		if lives && (st.PGID == g.pid || g.session && st.SID == g.pid) || g.wasSeen(st) || f.hasToken(pid) {
			ours[pid] = true
		}
	}
	var below func(pid int, depth int) bool
	below = func(pid, depth int) bool {
		if v, ok := ours[pid]; ok {
			return v
		}
		st, ok := all[pid]
		is := ok && depth < 1000 && st.PPID > 1 && below(st.PPID, depth+1)
		ours[pid] = is
		return is
	}
	for pid, st := range all {
		if pid > 1 && below(pid, 0) {
			f.add(st)
		}
	}
}

func (g *Group) wasSeen(st platform.Stat) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ticks, ok := g.seen[st.PID]
	return ok && ticks == st.StartTicks
}

func (f *finder) hasToken(pid int) bool {
	if f.g.token == "" || pid == os.Getpid() {
		return false
	}
	v, ok, err := platform.Environ(pid, TokenVar)
	return err == nil && ok && tokenBelow(v, f.g.token)
}

// tokenBelow reports whether a process with token v belongs to the run with
// the given token: tokens are paths, outer/inner.
func tokenBelow(v, token string) bool { return v == token || strings.HasPrefix(v, token+"/") }
