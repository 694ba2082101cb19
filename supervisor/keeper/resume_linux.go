package keeper

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

const (
	// reapWait is how long the parent of an ended stranger may take to reap it:
	// only then does the kernel tell how it ended (PIDFD_INFO_EXIT).
	reapWait = 5 * time.Second
	// heirWait is how long an upgrade waits until it is clear which runs were
	// spawned.
	heirWait = 5 * time.Second
)

const lostAway = "the keeper that was its parent was killed, and this system does not tell how it ended"

// inherit takes over from the keeper before us. Its supervisor was this process,
// or is dead as well.
func (k *keeper) inherit(e *estate) {
	k.gen, k.exits, k.told, k.upgraded = e.Generation, e.Exits, e.Told, string(e.Upgraded)
	if len(e.Exe) > 0 {
		k.exe, k.goodExe = string(e.Exe), string(e.GoodExe)
	}
	if e.StopAtNS != 0 {
		k.stopBy = time.Unix(0, e.StopAtNS)
	}
	var away []*run
	for _, b := range e.Runs {
		k.last++
		r := &run{
			id: b.ID, token: b.Token, num: k.last, gen: b.Gen, mark: b.Mark, since: b.Since, pid: b.PID, ticks: b.Ticks,
			pidfd: b.Pidfd, adopted: b.Adopted, stranger: b.Stranger, exit: b.Exit.exit(),
		}
		r.pipes = noHoles(b.Pipes)
		k.runs[r.id], k.by[r.num] = r, r
		if b.Pending {
			away = append(away, r)
		}
	}
	k.findAway(away)
	for _, r := range k.inOrder() {
		if r.adopted && r.pid != 0 && r.exit == nil {
			k.awaitInherited(r)
		}
	}
	k.adopt(&supervisor{gen: e.Generation, sock: -1, marks: e.Marks})
	k.sawEnds()
	k.orphans()
	k.log.Warn("the keeper is succeeded", "generation", k.gen, "handles", len(k.runs))
}

// noHoles puts a pipe at its end in the place of one that was closed: pipes are
// told apart by their order.
func noHoles(pipes []int) []int {
	for i, fd := range pipes {
		var ends [2]int
		if fd < 0 && unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK) == nil {
			_ = unix.Close(ends[1])
			pipes[i] = ends[0]
		}
	}
	return slices.DeleteFunc(pipes, func(fd int) bool { return fd < 0 })
}

// awaitInherited waits for the end of a command that was adopted before.
func (k *keeper) awaitInherited(r *run) {
	if r.pidfd >= 0 {
		_ = k.ends.add(r.pidfd, unix.EPOLLIN|unix.EPOLLONESHOT, tag{r.num, 0})
		return
	}
	if err := k.openPidfd(r, k.ends); err != nil && (r.stranger || errors.Is(err, platform.ErrGone)) {
		k.settle(r, Exit{Exit: platform.Exit{Code: -1}, Lost: lostAway})
	}
}

// findAway finds the commands of runs whose start was cut short by the death of
// a supervisor, when the keeper that was finding that out has died as well:
// they are nobody's children whom we know, only their marks tell. The command
// is the oldest that has the mark.
func (k *keeper) findAway(runs []*run) {
	if len(runs) == 0 {
		return
	}
	by := map[uint64]*run{}
	for _, r := range runs {
		r.adopted, r.stranger = true, true
		if r.mark != 0 {
			by[r.mark] = r
		}
	}
	platform.ScanProcesses(func(st platform.Stat) {
		r := by[platform.MarkOf(st.PID)]
		if r == nil || st.PGID != st.PID {
			return
		}
		if r.pid == 0 || st.StartTicks < r.ticks || st.StartTicks == r.ticks && st.PID < r.pid {
			r.pid, r.ticks = st.PID, st.StartTicks
		}
	})
	for _, r := range runs {
		if r.pid == 0 {
			k.settle(r, Exit{Exit: platform.Exit{Code: -1}, Lost: lostStart})
		}
	}
}

// reaped reports whether the parent of a stranger that has ended has reaped it;
// if not, that is waited for.
func (k *keeper) reaped(r *run) bool {
	if errors.Is(platform.SignalPidfd(r.pidfd, 0), platform.ErrGone) {
		return true
	}
	now := time.Now()
	if r.lostAt.IsZero() {
		r.lostAt = now.Add(reapWait)
	}
	if !now.Before(r.lostAt) {
		return true
	}
	// EPOLLHUP, Linux 6.9, is reported whether asked for or not.
	_ = k.ends.control(unix.EPOLL_CTL_MOD, r.pidfd, unix.EPOLLONESHOT, tag{r.num, 0})
	return false
}

// loseUnreaped gives up strangers that nobody reaps.
func (k *keeper) loseUnreaped(now time.Time) {
	for _, r := range k.runs {
		if !r.lostAt.IsZero() && !now.Before(r.lostAt) {
			k.ended(r)
			r.lostAt = time.Time{}
		}
	}
}

// handToHeir executes the program of a supervisor that demanded a newer keeper.
func (k *keeper) handToHeir() {
	k.heirBy = time.Time{}
	var err error = errors.New("it is still unclear which commands were started")
	if len(k.rest) == 0 {
		syscall.ForkLock.Lock()
		err = k.execHeir()
		syscall.ForkLock.Unlock()
	}
	k.log.Error("the keeper could not execute the new program, going back to the one before", "exe", k.exe, "before", k.goodExe, "err", err)
	k.exe, k.deaths = k.goodExe, 0
	k.startAt = time.Now()
}

func (k *keeper) execHeir() error {
	e := &estate{
		Format: estateFormat, Generation: k.gen, Exits: k.exits, Told: k.told, Exe: []byte(k.exe), GoodExe: []byte(k.goodExe),
		Upgraded: []byte(k.upgraded), StopAtNS: unixNano(k.stopBy), Lock: k.lock, Files: k.files, Carry: k.cfg.Carry,
	}
	for _, r := range k.inOrder() {
		e.Runs = append(e.Runs, estateRun{
			ID: r.id, Token: r.token, Gen: r.gen, Pipes: r.pipes, Mark: r.mark, Since: r.since, PID: r.pid, Ticks: r.ticks, Pidfd: r.pidfd,
			Adopted: r.adopted, Stranger: r.stranger, Exit: toBody(r.exit),
		})
	}
	return e.pass(k.exe, k.cfg.Heir)
}

func (k *keeper) stage(s Stage) {
	if k.cfg.Stage != nil {
		k.cfg.Stage(s)
	}
}

func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
