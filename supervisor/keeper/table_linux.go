package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// A run is what the keeper holds of one registered run.
type run struct {
	id, token string
	num       int32 // in the order of registration
	gen       int   // the supervisor that registered it
	pipes     []int
	mark      uint64
	since     uint64 // start ticks at registration: its command cannot be older
	pid       int    // 0: no spawn was told of, and none found
	ticks     uint64
	pidfd     int  // -1: none
	adopted   bool // the supervisor that spawned it is dead
	stranger  bool // its parent is neither us nor the supervisor: a keeper before us was
	pending   bool // whether it was spawned is being found out
	aborted   bool // its child ended without having executed the program
	exit      *Exit
	told      bool      // the living supervisor knows exit
	lostAt    time.Time // when a stranger that has ended is lost unless it is reaped
}

// release closes what the keeper holds of it.
func (r *run) release() {
	closeAll(r.pipes)
	r.pipes = nil
	if r.pidfd >= 0 {
		_ = unix.Close(r.pidfd) // which takes it out of the pollers
		r.pidfd = -1
	}
}

func (r *run) body() runBody {
	b := runBody{ID: r.id, Token: r.token, Pipes: len(r.pipes), Pending: r.pending}
	if r.pending { // it is not sure yet
		b.Mark = r.mark
	} else {
		b.PID, b.StartTicks, b.Exit = r.pid, r.ticks, toBody(r.exit)
	}
	return b
}

// inOrder lists the runs as they were registered.
func (k *keeper) inOrder() []*run {
	out := make([]*run, 0, len(k.runs))
	for _, r := range k.runs {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *run) int { return cmp.Compare(a.num, b.num) })
	return out
}

// register takes a run, or closes what came and says why not.
func (k *keeper) register(m message, fds []int) {
	err := k.admit(m, fds)
	ack := message{Kind: kindAck, Seq: m.Seq, Count: len(fds)}
	if err != nil {
		closeAll(fds)
		ack.Error = err.Error()
	} else {
		k.last++
		r := &run{id: m.ID, token: m.Token, num: k.last, gen: k.gen, pipes: fds, mark: cmp.Or(m.Mark, k.marks+uint64(k.last)), since: platform.NowTicks(), pidfd: -1}
		ack.Mark = r.mark
		k.runs[r.id], k.by[r.num] = r, r
		k.pipes += len(fds)
	}
	k.send(ack, nil)
}

func (k *keeper) admit(m message, fds []int) error {
	if len(fds) != m.Pipes {
		soft, _ := platform.FDLimit()
		return fmt.Errorf("received %d of %d descriptors (RLIMIT_NOFILE %d)", len(fds), m.Pipes, soft)
	}
	if k.runs[m.ID] != nil {
		return errors.New("it is registered already")
	}
	need := uint64(k.descriptors() + m.Pipes + 1)
	if soft, _ := platform.FDLimit(); need > soft {
		return fmt.Errorf("the keeper would need %d descriptors (RLIMIT_NOFILE %d)", need, soft)
	}
	return nil
}

// descriptors is how many the keeper has or will need for what it has taken:
// pipes, a pidfd for each run, and its own.
func (k *keeper) descriptors() int {
	const own = 28 // stdio, pollers, sockets, what /proc takes for a moment
	return own + len(k.cfg.Files) + len(k.runs) + k.pipes
}

// spawned notes which process a run's command is. Its pidfd goes where ends
// are only looked at once the supervisor is dead.
func (k *keeper) spawned(m message) {
	r := k.runs[m.ID]
	if r == nil || r.pid != 0 {
		return
	}
	r.pid, r.ticks = m.PID, m.StartTicks
	_ = k.openPidfd(r, k.quiet) // adopt tries again
}

// openPidfd opens the pidfd of a run's command if it is still the same
// process, and adds it to a poller. It returns platform.ErrGone if it is not.
func (k *keeper) openPidfd(r *run, to *poller) error {
	fd, err := platform.OpenPidfd(r.pid)
	if err != nil {
		return err
	}
	// Read after it was opened: the number cannot pass to another in between.
	if st, err := platform.ReadStat(r.pid); errors.Is(err, platform.ErrGone) || err == nil && st.StartTicks != r.ticks {
		_ = unix.Close(fd)
		return platform.ErrGone
	}
	r.pidfd = fd
	return to.add(fd, unix.EPOLLIN|unix.EPOLLONESHOT, tag{r.num, 0})
}

// forget closes what is held of a run, and frees its command's number if that
// was pinned here.
func (k *keeper) forget(id string) {
	r := k.runs[id]
	if r == nil {
		return
	}
	delete(k.runs, id)
	delete(k.by, r.num)
	for _, a := range k.rest {
		a.runs = slices.DeleteFunc(a.runs, func(o *run) bool { return o == r })
	}
	k.pipes -= len(r.pipes)
	r.release()
	if r.adopted && !r.stranger && r.pid != 0 {
		platform.ReapIfEnded(r.pid)
		k.orphans() // the pinned one may have hidden others
	}
}

// sawEnds takes the ends of adopted commands, in their order.
func (k *keeper) sawEnds() { k.drain(k.ends) }

func (k *keeper) drain(p *poller) {
	var buf [64]unix.EpollEvent
	for {
		evs := p.ready(buf[:])
		for _, ev := range evs {
			if r := k.by[ev.Fd]; r != nil {
				k.ended(r)
			}
		}
		if len(evs) == 0 {
			return
		}
	}
}

// ended peeks at how an adopted command ended and leaves the zombie.
func (k *keeper) ended(r *run) {
	if r.exit != nil || r.pid == 0 {
		return
	}
	var e Exit
	exit, over, err := platform.PeekExit(r.pidfd)
	switch {
	case err == nil && !over:
		return
	case err == nil:
		e.Exit = exit
		e.Usage, _ = platform.PeekUsage(r.pid)
	default: // not our child: somebody else reaps it, or has
		exit, known := platform.ExitOfZombie(r.pidfd)
		if !known {
			exit, known = platform.ExitAfterReap(r.pidfd)
		}
		if !known && r.stranger && !k.reaped(r) {
			return
		}
		if e.Exit = exit; !known {
			e.Code, e.Lost = -1, lostReaped
		}
	}
	k.settle(r, e)
}

// blind takes the ends of adopted commands that have no pidfd: the limit of
// descriptors was lowered after they were registered.
func (k *keeper) blind() {
	for _, r := range k.runs {
		if !r.adopted || r.stranger || r.pid == 0 || r.pidfd >= 0 || r.exit != nil || k.openPidfd(r, k.ends) == nil {
			continue
		}
		if st, err := platform.ReadStat(r.pid); err == nil && !st.Alive() {
			exit, _ := platform.AwaitExit(r.pid) // it has ended
			usage, _ := platform.PeekUsage(r.pid)
			k.settle(r, Exit{Exit: exit, Usage: usage})
		}
	}
	k.sawEnds()
}

// settle gives an end its place in the order and tells it.
func (k *keeper) settle(r *run, e Exit) {
	k.exits++
	e.ID, e.PID, e.StartTicks, e.Order, e.At = r.id, r.pid, r.ticks, k.exits, time.Now()
	r.exit = &e
	k.tell(r)
}

// tell tells the supervisor of an end that it does not know.
func (k *keeper) tell(r *run) {
	if r.exit != nil && !r.told && !r.pending && k.sup != nil && k.sup.open {
		r.told = true
		k.send(message{Kind: kindExit, Exit: toBody(r.exit)}, nil)
	}
}

// pinned reports whether a child of ours must stay a zombie for now.
func (k *keeper) pinned() map[int]bool {
	out := map[int]bool{}
	if k.sup != nil {
		out[k.sup.pid] = true
	}
	for _, r := range k.runs {
		if r.pid != 0 && !r.stranger { // also before we know that its parent, the supervisor, died
			out[r.pid] = true
		}
	}
	for _, a := range k.rest {
		for _, s := range a.strangers {
			out[s.pid] = true
		}
	}
	return out
}

// unclear reports whether a child may be the command of a run that was not told
// to be spawned yet. The kernel gives us the children of a dying supervisor, and
// tells us so, before the supervisor itself is seen to be dead. Where commands
// have no marks, a zombie that is young enough may be any such run's.
func (k *keeper) unclear(pid int) bool {
	mark := sync.OnceValue(func() uint64 { return platform.MarkOf(pid) })
	unmarked, since := k.sup != nil && !k.sup.marks, uint64(0)
	for _, r := range k.runs {
		if r.pid != 0 || r.mark == 0 {
			continue
		}
		if m := mark(); m != 0 && m == r.mark {
			return true
		}
		if unmarked && r.gen == k.sup.gen && (since == 0 || r.since < since) {
			since = r.since
		}
	}
	if since == 0 {
		return false
	}
	st, err := platform.ReadStat(pid)
	return err == nil && st.StartTicks+1 >= since
}

// orphans reaps children that ended and are nobody's command. The kernel shows
// only the first zombie: while that is a pinned one, the children are listed,
// at most ten times a second.
func (k *keeper) orphans() {
	const pause = 100 * time.Millisecond
	var pins map[int]bool
	for {
		pid := platform.FirstZombie()
		if pid == 0 {
			k.scanAt = time.Time{}
			return
		}
		if pins == nil {
			pins = k.pinned()
		}
		if pins[pid] || k.unclear(pid) {
			break
		}
		platform.ReapIfEnded(pid)
	}
	if next := k.scanned.Add(pause); time.Now().Before(next) {
		k.scanAt = next
		return
	}
	k.scanned, k.scanAt = time.Now(), time.Time{}
	for _, pid := range platform.AdoptedChildren() {
		switch {
		case pins[pid]:
		case k.unclear(pid):
			k.scanAt = k.scanned.Add(pause)
		default:
			platform.ReapIfEnded(pid)
		}
	}
}
