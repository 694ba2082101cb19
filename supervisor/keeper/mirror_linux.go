package keeper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// errNoSuccession says that the keeper cannot be succeeded: it lives, or it is
// of a version that leaves nothing to its supervisor.
var errNoSuccession = errors.New("this keeper cannot be succeeded")

// A mirror is what the keeper holds, as far as its supervisor knows, so that
// the supervisor can go on in its place. Link.mu guards it.
type mirror struct {
	will   *willBody // nil: none came
	lock   int       // a second descriptor of the state lock; -1: none
	files  []int
	gen    int
	runs   map[string]*mirrored
	last   int
	exits  int64  // the highest Order there was
	exe    []byte // of Replace
	ready  bool
	stopBy time.Time // of a shutdown that the keeper asked for
}

type mirrored struct {
	num     int // in the order of registration
	token   string
	pipes   []Descriptor // the supervisor's own
	mark    uint64
	since   uint64
	pid     int
	ticks   uint64
	pidfd   Descriptor // of a command that is not our child; nil: none, or own
	own     int        // the pidfd until HoldPidfd; -1: none
	adopted bool       // a supervisor before us spawned it
	pending bool
	exit    *Exit
}

func (m *mirror) init() { m.lock, m.runs = -1, map[string]*mirrored{} }

// close lets go of everything, when there is no keeper to succeed any more.
func (m *mirror) close() {
	for id := range m.runs {
		m.forget(id)
	}
	closeAll(m.files)
	if m.lock >= 0 {
		_ = unix.Close(m.lock)
	}
	m.files, m.lock, m.will = nil, -1, nil
}

// inherit takes the keeper's will, and the lock beside it.
func (m *mirror) inherit(w *willBody, fds []int) {
	if w == nil || w.Lock != (len(fds) == 1) || m.will != nil { // no descriptor was left for the lock
		closeAll(fds)
		return
	}
	m.will = w
	if w.Lock {
		m.lock = fds[0]
	}
}

func (m *mirror) add(id string, r *mirrored) {
	m.last++
	r.num = m.last
	m.runs[id] = r
}

// addRun takes a run from the hand-over: its command is none of our children.
func (m *mirror) addRun(r Run, mark uint64) {
	c := &mirrored{token: r.Token, mark: mark, own: -1, adopted: true, pending: r.Pending, exit: r.Exit}
	for _, f := range r.Pipes {
		rc, _ := f.SyscallConn() // it fails for a nil file only
		c.pipes = append(c.pipes, rc)
	}
	if r.PID != 0 {
		c.watch(r.PID, r.StartTicks, r.Pidfd)
	}
	if r.Exit != nil {
		m.exits = max(m.exits, r.Exit.Order)
	}
	m.add(r.ID, c)
}

// watch opens a pidfd of a command that the keeper is the parent of, or knows
// by one. As long as it is not settled the keeper pins the number; when the
// keeper is dead the kernel tells an end only to who has one.
func (r *mirrored) watch(pid int, ticks uint64, known *os.File) {
	r.pid, r.ticks = pid, ticks
	if known != nil {
		if rc, err := known.SyscallConn(); err == nil {
			_ = rc.Control(func(fd uintptr) { r.own = dup(int(fd)) })
		}
		return
	}
	fd, err := platform.OpenPidfd(pid)
	if err != nil {
		return
	}
	if st, err := platform.ReadStat(pid); err != nil || st.StartTicks != ticks {
		_ = unix.Close(fd)
		return
	}
	r.own = fd
}

// drop closes the pidfd that is our own.
func (r *mirrored) drop() {
	closeAll([]int{r.own})
	r.own = -1
}

// dup gives a second descriptor, or -1.
func dup(fd int) int {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1
	}
	return n
}

func (m *mirror) spawned(id string, pid int, ticks uint64) {
	if r := m.runs[id]; r != nil && !r.adopted && r.pid == 0 {
		r.pid, r.ticks = pid, ticks
	}
}

func (m *mirror) found(f Found) {
	r := m.runs[f.ID]
	if r == nil || !r.pending {
		return
	}
	r.pending = false
	if f.PID != 0 {
		r.watch(f.PID, f.StartTicks, nil)
	}
}

func (m *mirror) ended(e *Exit) {
	m.exits = max(m.exits, e.Order)
	if r := m.runs[e.ID]; r != nil {
		r.exit = e
		r.pending = r.pending && e.Lost == ""
	}
}

func (m *mirror) trim(id string, pipes int) {
	if r := m.runs[id]; r != nil && pipes < len(r.pipes) {
		r.pipes = r.pipes[:pipes]
	}
}

func (m *mirror) forget(id string) {
	if r := m.runs[id]; r != nil {
		r.drop()
	}
	delete(m.runs, id)
}

// Succeed makes this process the keeper in place of the one that died: it
// executes exe, with the number of what [OpenEstate] reads as argv's last
// argument, and stays the parent of all commands that it spawned. No start is
// under way at that moment; one that was registered and not spawned never will
// be. It returns only when it fails: the keeper lives, or is of an older
// version (Handover.Carry is nil then), or exe cannot be executed.
func (l *Link) Succeed(exe string, argv []string) error {
	var err error
	// A child between fork and exec would hold what is closed on exec, and
	// could not be told from a command; a start leaves its mark on us.
	platform.BetweenStarts(func() {
		syscall.ForkLock.Lock()
		defer syscall.ForkLock.Unlock()
		err = l.succeed(exe, argv)
	})
	if errors.Is(err, errNoSuccession) && !l.isGone() {
		return fmt.Errorf("succeed the keeper: %w", err)
	}
	l.hopeless()
	return fmt.Errorf("succeed the keeper: %w", err)
}

func (l *Link) isGone() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

func (l *Link) succeed(exe string, argv []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mirror.will == nil || !l.isGone() {
		return errNoSuccession
	}
	return l.mirror.estate(l.marked).pass(exe, argv)
}

// estate is what a successor of the keeper starts from.
func (m *mirror) estate(marks bool) *estate {
	w := m.will
	e := &estate{
		Format: estateFormat, Generation: m.gen, Exits: m.exits, Told: w.Told || m.ready, Marks: marks,
		Exe: w.Exe, GoodExe: w.GoodExe, StopAtNS: w.StopAtNS, Lock: m.lock, Files: m.files, Carry: w.Carry,
	}
	if m.ready {
		e.GoodExe = w.Exe
	}
	if len(m.exe) > 0 {
		e.Exe = m.exe
	}
	if !m.stopBy.IsZero() {
		e.StopAtNS = m.stopBy.UnixNano()
	}
	for id, r := range m.runs {
		b := estateRun{
			ID: id, Token: r.token, Mark: r.mark, Since: r.since, PID: r.pid, Ticks: r.ticks, Pidfd: r.own, heldPidfd: r.pidfd, held: r.pipes,
			Adopted: r.adopted, Stranger: r.adopted && r.pid != 0, Pending: r.pending, Exit: toBody(r.exit), num: r.num,
		}
		if !r.adopted {
			b.Gen = m.gen
		}
		e.Runs = append(e.Runs, b)
	}
	slices.SortFunc(e.Runs, func(a, b estateRun) int { return a.num - b.num })
	return e
}

// hopeless says that the keeper will have no successor.
func (l *Link) hopeless() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mirror.close()
	select {
	case <-l.lost:
	default:
		close(l.lost)
	}
}

// awaitSuccession returns when the keeper will have no successor.
func (l *Link) awaitSuccession() {
	l.mu.Lock()
	can := l.mirror.will != nil
	l.mu.Unlock()
	if can {
		<-l.lost
	}
}
