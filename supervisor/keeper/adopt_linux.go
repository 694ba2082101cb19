package keeper

import (
	"errors"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// tokenVar is pgroup.TokenVar, see design.md §4: a path whose last element is
// the run's id.
const tokenVar = "PROCSUP_RUN"

// An aftermath is what a dead supervisor left unclear: runs that it registered
// and did not report as spawned, and children of which one of them may be.
//
// A child that has not executed its program yet runs the supervisor's, and
// holds the supervisor's end of the socket, as the copy of its descriptors that
// every child is born with. So that end is closed once the last of them has
// executed or ended: nothing is polled.
type aftermath struct {
	gen       int
	sock      int // -1: closed, all have executed
	program   platform.Program
	runs      []*run
	strangers []stranger
	marks     bool      // all of its commands have marks
	ended     int       // strangers that ended before it was known whose they were
	again     time.Time // look again then
	tries     int
}

type stranger struct {
	pid, pidfd int
	ticks      uint64
}

func (a *aftermath) close() {
	for _, s := range a.strangers {
		s.close()
	}
	a.strangers = nil
	if a.sock >= 0 {
		_ = unix.Close(a.sock)
	}
}

func (s stranger) close() {
	if s.pidfd >= 0 {
		_ = unix.Close(s.pidfd)
	}
}

// adopt takes over the commands of a supervisor that is dead.
func (k *keeper) adopt(dead *supervisor) {
	var unclear []*run
	for _, r := range k.inOrder() {
		r.told = false
		switch {
		case r.adopted || r.gen != dead.gen:
		case r.pid == 0:
			unclear = append(unclear, r)
		default:
			r.adopted = true
		}
	}
	k.moveEnds(dead.gen)
	if len(unclear) == 0 {
		if dead.sock >= 0 {
			_ = unix.Close(dead.sock)
		}
		return
	}
	a := &aftermath{gen: dead.gen, sock: dead.sock, program: dead.program, marks: dead.marks, runs: unclear}
	if a.sock >= 0 {
		_ = k.poll.control(unix.EPOLL_CTL_MOD, a.sock, unix.EPOLLIN, tag{aboutRest, int32(a.gen)})
	}
	for _, r := range unclear {
		r.pending = true
	}
	k.rest = append(k.rest, a)
	k.findStrangers(a)
	k.lookAgain()
}

// moveEnds takes the ends that nobody looked at while the supervisor lived, in
// their order, and awaits the others.
func (k *keeper) moveEnds(gen int) {
	k.drain(k.quiet)
	for _, r := range k.inOrder() {
		if !r.adopted || r.exit != nil || r.gen != gen || r.pid == 0 {
			continue
		}
		if r.pidfd >= 0 {
			_ = k.ends.add(r.pidfd, unix.EPOLLIN|unix.EPOLLONESHOT, tag{r.num, 0})
		} else if err := k.openPidfd(r, k.ends); errors.Is(err, platform.ErrGone) {
			k.settle(r, Exit{Exit: platform.Exit{Code: -1}, Lost: lostReaped})
		}
	}
	k.drain(k.quiet) // in both now: what ended in between keeps its order
	if p, err := newPoller(); err == nil {
		k.quiet.close()
		k.quiet = p
	}
	k.sawEnds()
}

// findStrangers lists the children that could be the command of an unclear
// run: leaders of their own group, not older than the first registration.
func (k *keeper) findStrangers(a *aftermath) {
	since := a.runs[0].since
	pins := k.pinned()
	for _, pid := range platform.AdoptedChildren() {
		// Before its group is read: a child leads its own group before it executes.
		waiting := k.unexecuted(a, pid)
		st, err := platform.ReadStat(pid)
		if pins[pid] || err != nil || st.StartTicks+1 < since {
			continue
		}
		if a.program == (platform.Program{}) || st.PGID == pid || waiting {
			s := stranger{pid: pid, ticks: st.StartTicks}
			if s.pidfd, err = platform.OpenPidfd(pid); err == nil {
				_ = k.poll.add(s.pidfd, unix.EPOLLIN, tag{aboutRest, int32(a.gen)})
			}
			a.strangers = append(a.strangers, s)
		}
	}
}

// unexecuted reports whether a child may still execute another program: it has
// not since it was forked, or it runs the dead supervisor's and somebody still
// holds that one's socket.
func (k *keeper) unexecuted(a *aftermath, pid int) bool {
	if platform.NeverExecuted(pid) {
		return true
	}
	p, err := platform.ProgramOf(pid)
	return a.sock >= 0 && err == nil && p == a.program
}

// lookAgain finds out whose the strangers are, as far as that can be told now.
func (k *keeper) lookAgain() {
	k.rest = slices.DeleteFunc(k.rest, func(a *aftermath) bool {
		k.look(a)
		if len(a.strangers) > 0 {
			return false
		}
		k.conclude(a)
		a.close()
		return true
	})
	if len(k.rest) == 0 && k.sup != nil && !k.sup.waitTill.IsZero() {
		k.handOver()
	}
}

func (k *keeper) look(a *aftermath) {
	if a.sock >= 0 {
		_, fds, err := k.recv.packet(a.sock)
		closeAll(fds)
		if err == errClosed {
			k.poll.remove(a.sock)
			_ = unix.Close(a.sock)
			a.sock = -1
		}
	}
	a.again = time.Time{}
	a.strangers = slices.DeleteFunc(a.strangers, func(s stranger) bool {
		keep := k.recognise(a, s)
		if !keep {
			s.close()
		}
		return !keep
	})
}

// recognise reports whether a stranger must be looked at again.
func (k *keeper) recognise(a *aftermath, s stranger) bool {
	const maxTries, pause = 200, 5 * time.Millisecond
	never := platform.NeverExecuted(s.pid) // before its state is read
	st, err := platform.ReadStat(s.pid)
	if err != nil || st.StartTicks != s.ticks {
		a.ended++
		return false
	}
	if never && st.Alive() {
		if a.sock < 0 { // a child with descriptors at numbers of their own closes the rest before it executes
			a.again = time.Now().Add(pause)
		}
		return true // its end, or the socket's, wakes us
	}
	r, sure := k.ownerOf(a, s.pid)
	switch {
	case r != nil && never:
		r.aborted = true
	case r != nil:
		if st.PGID == s.pid {
			k.found(r, s)
		}
	case !st.Alive() || platform.Exiting(s.pid): // its environment and files may be gone before it is a zombie
		a.ended++
	case k.unexecuted(a, s.pid):
		if a.sock < 0 {
			a.again = time.Now().Add(pause)
		}
		return true
	case !sure && a.tries < maxTries:
		a.tries++ // it is inside execve(2), which nothing tells the end of
		a.again = time.Now().Add(pause)
		return true
	}
	return false
}

// ownerOf finds the unclear run that a process belongs to: by its mark, by the
// token in its environment, or, as `env -i` drops that, by the pipe it has as
// stdin, stdout or stderr. Of a zombie only the mark can be read; not sure: its
// environment cannot be read yet.
func (k *keeper) ownerOf(a *aftermath, pid int) (r *run, sure bool) {
	if mark := platform.MarkOf(pid); mark != 0 {
		for _, r := range a.runs {
			if r.mark == mark {
				return r, true
			}
		}
	}
	token, ok, sure, _ := platform.EnvironNow(pid, tokenVar)
	for _, r := range a.runs {
		if ok && (token == r.token || path.Base(token) == r.id) {
			return r, true
		}
	}
	for _, r := range a.runs {
		for _, fd := range r.pipes {
			if platform.HoldsPipe(pid, fd) {
				return r, true
			}
		}
	}
	return nil, sure
}

// found makes a stranger the command of a run, unless an older one is: that
// one is its ancestor, which left a daemon behind.
func (k *keeper) found(r *run, s stranger) {
	if r.pid != 0 && (r.ticks < s.ticks || r.ticks == s.ticks && r.pid < s.pid) {
		return
	}
	if r.pidfd >= 0 {
		_ = unix.Close(r.pidfd)
		r.pidfd = -1
	}
	r.pid, r.ticks, r.adopted, r.exit = s.pid, s.ticks, true, nil
	_ = k.openPidfd(r, k.ends) // blind awaits it without
}

// conclude settles what is known of the unclear runs once no stranger is left.
func (k *keeper) conclude(a *aftermath) {
	for _, r := range a.runs {
		r.pending, r.adopted = false, true
		switch {
		case r.pid == 0 && r.aborted:
			k.settle(r, Exit{Exit: platform.Exit{Code: -1}, Lost: lostFork})
			continue
		case r.pid == 0 && a.ended > 0 && !a.marks:
			k.settle(r, Exit{Exit: platform.Exit{Code: -1}, Lost: lostStart})
			continue
		}
		if k.sup != nil && k.sup.open {
			k.send(message{Kind: kindFound, ID: r.id, PID: r.pid, StartTicks: r.ticks}, nil)
			k.tell(r)
		}
	}
	k.sawEnds()
}
