package pgroup

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
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
	Many    bool   // see Config.Many
	Cgroup  string // "" = none
	Token   string // "" = none
	Mark    uint64 // 0 = none, see Config.Mark
	// Siblings are the children of the command's parent, when that is a subreaper
	// of ours; nil: every process there is has to be looked at.
	Siblings *Siblings
}

// OpenRemote makes a Group of a command of which this process is not the
// parent. Everything goes through pidfds, never through numbers, and its tree
// is found by scanning /proc. It cannot be reaped; how it ended is unknown.
func OpenRemote(r Remote) (*Group, error) {
	g := newGroup(r.Session, r.Token)
	g.pid, g.remote, g.level, g.exit, g.mark = r.PID, true, Tree, platform.Exit{Code: -1}, r.Mark
	g.siblings = r.Siblings
	g.identity = platform.Identity{BootID: platform.BootID(), PID: r.PID}
	if err := unix.SetNonblock(r.Pidfd, true); err != nil {
		return nil, fmt.Errorf("pidfd of command %d: %w", r.PID, err)
	}
	st, err := platform.ReadStat(r.PID)
	if err == nil && !errors.Is(platform.SignalPidfd(r.Pidfd, 0), platform.ErrGone) {
		// Not reaped after it was read: it was no stranger's.
		g.identity.StartTicks, g.base = st.StartTicks, st.SID
	}
	if r.Cgroup != "" {
		if g.cgroup, err = platform.OpenCgroup(r.Cgroup); err == nil {
			g.cgroup.CloseFD() // nothing is started in it
			g.level = Cgroup
			if r.Many {
				g.cgroup.Rest()
			}
		}
	}
	g.pidfd = os.NewFile(uintptr(r.Pidfd), "pidfd")
	go func() { // ends with the leader, or by Release
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
	err := g.signalGroupFD(sig)
	if err == nil || errors.Is(err, platform.ErrGone) || errors.Is(err, ErrReaped) {
		return err
	}
	if !ended(g.done) {
		err = g.sendLeader(sig)
	}
	for _, m := range g.members() {
		if m.PGID != g.pid {
			continue
		}
		if e := signalMember(m, sig); e != nil && !errors.Is(e, platform.ErrGone) {
			err = e
		} else if errors.Is(err, unix.EINVAL) {
			err = nil // the group call was not known, and it went without
		}
	}
	return err
}

func (g *Group) signalGroupFD(sig syscall.Signal) error {
	return g.withPidfd(func(fd int) error { return signalPidfdGroup(fd, sig) })
}

// signalPidfdGroup is a variable so that a test can be a kernel before 6.9.
var signalPidfdGroup = platform.SignalPidfdGroup

// groupLives reports whether the number still names the command's own group:
// as long as one member is left it cannot be given to another. Where the kernel
// does not tell, a member must be seen that was seen before.
func (g *Group) groupLives() bool {
	if !ended(g.done) || g.pinned() {
		return true
	}
	err := g.signalGroupFD(0)
	switch {
	case err == nil, errors.Is(err, unix.EPERM):
		return true
	case errors.Is(err, platform.ErrGone), errors.Is(err, ErrReaped):
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for pid, ticks := range g.seen {
		st, err := platform.ReadStat(pid)
		if err == nil && st.StartTicks == ticks && st.PGID == g.pid {
			return true
		}
	}
	return false
}

// addRemote scans /proc for what belongs to a command of another process: its
// group and session, descendants, and carriers of its token.
func (f *finder) addRemote() {
	g := f.g
	all := everyone.ask(scanAll)
	lives := g.groupLives()
	g.dropHomes(all)
	ours := map[int]bool{g.pid: !ended(g.done)}
	for pid, p := range all {
		if lives && g.inGroup(p.Stat) || g.known(p.Stat) || g.mark != 0 && p.mark() == g.mark || g.token != "" && p.token != "" && tokenBelow(p.token, g.token) {
			ours[pid] = true
		}
	}
	var below func(pid int, depth int) bool
	below = func(pid, depth int) bool {
		if v, ok := ours[pid]; ok {
			return v
		}
		st, ok := all[pid]
		ok = ok && st.Comm != keeperName
		is := ok && depth < 1000 && st.PPID > 1 && below(st.PPID, depth+1)
		ours[pid] = is
		return is
	}
	for pid, p := range all {
		if pid > 1 && below(pid, 0) {
			f.add(p.Stat)
		}
	}
}

// A process is what a scan of all shows of one.
type process struct {
	platform.Stat
	token string        // "" = none, or not to be read
	mark  func() uint64 // read when somebody asks
}

// everyone is scanned once for all commands that ask at the same time.
var everyone asked[map[int]process]

func scanAll() map[int]process {
	all := map[int]process{}
	platform.ScanProcesses(func(st platform.Stat) {
		p := process{Stat: st, mark: sync.OnceValue(func() uint64 { return platform.MarkOf(st.PID) })}
		if st.PID != os.Getpid() {
			p.token, _, _ = platform.Environ(st.PID, TokenVar)
		}
		all[st.PID] = p
	})
	return all
}

// dropHomes forgets sessions and groups whose number has another owner now.
func (g *Group) dropHomes(all map[int]process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.homes {
		if st, ok := all[id]; ok && g.seen[id] != st.StartTicks {
			delete(g.homes, id)
		}
	}
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
