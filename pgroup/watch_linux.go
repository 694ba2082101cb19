package pgroup

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// maxWatched bounds the descriptors of one watch; whoever is over it is
// looked at again when watched ones end.
const maxWatched = 64

const (
	// swarm is how long after one end others are waited for before everything
	// is looked at again: a tree ends in swarms.
	swarm = 2 * time.Millisecond
	// lookAgain begins the pauses where nobody can be watched, maxPause ends
	// their doubling.
	lookAgain = time.Millisecond
	// firstLook is how long after a member was first seen everything is looked
	// at once more, and again after four times as long, up to lastLook.
	firstLook = 5 * time.Millisecond
	lastLook  = 400 * time.Millisecond
	maxPause  = 128 * time.Millisecond
)

// A watch waits for members to end, each through a pidfd in the netpoller, so
// that waiting costs neither threads nor polling.
type watch struct {
	sub   *Subreaper
	files map[int]*os.File // by PID; open while awaited
	ended chan int         // PIDs as they end
	pause time.Duration    // next one where nobody can be watched
	soon  time.Duration    // until the next look at newcomers; 0: none is needed
}

func newWatch(sub *Subreaper) *watch {
	return &watch{sub: sub, files: map[int]*os.File{}, ended: make(chan int, maxWatched), pause: lookAgain}
}

func (w *watch) close() {
	for pid := range w.files {
		w.drop(pid)
	}
}

func (w *watch) drop(pid int) {
	w.files[pid].Close() // wakes its goroutine
	delete(w.files, pid)
}

// await waits until the leader or a given member has ended: then it is time to
// look again. A deadline of zero is none.
func (w *watch) await(ms []platform.Stat, leader <-chan struct{}, deadline time.Time, next <-chan struct{}) wake {
	fresh := false
	for _, m := range ms {
		fresh = w.add(m) || fresh
	}
	if ended(leader) {
		leader = nil
	}
	var timeout, recheck <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	if len(w.files) > 0 || leader != nil {
		w.pause = lookAgain
	} else {
		// Something is left that cannot be watched: a process between two
		// parents, one of a pid namespace beside ours, or no descriptor is free.
		recheck = time.After(w.pause)
		w.pause = min(2*w.pause, maxPause)
	}
	if fresh { // it may be about to leave the group, which nothing tells
		w.soon = firstLook
	}
	if w.soon > 0 && recheck == nil {
		timer := time.NewTimer(w.soon)
		defer timer.Stop()
		recheck = timer.C
	}
	select {
	case pid := <-w.ended:
		w.bury(pid)
	case <-leader:
		return leaderGone
	case <-recheck:
		if w.soon *= 4; w.soon > lastLook {
			w.soon = 0
		}
		return memberGone
	case <-timeout:
		return timeOver
	case <-next:
		return hurried
	}
	for more := time.After(swarm); len(w.files) > 0; {
		select {
		case pid := <-w.ended:
			w.bury(pid)
		case <-more:
			return memberGone
		}
	}
	return memberGone
}

func (w *watch) bury(pid int) {
	if rc, err := w.files[pid].SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) { w.sub.reapMember(pid, int(fd)) })
	}
	w.drop(pid)
}

// add begins to wait for a member and reports whether it is a new one.
func (w *watch) add(m platform.Stat) bool {
	if _, ok := w.files[m.PID]; ok || len(w.files) >= maxWatched {
		return false
	}
	fd, err := platform.OpenPidfd(m.PID)
	if err != nil {
		return false
	}
	if now, err := platform.ReadStat(m.PID); err != nil || now.StartTicks != m.StartTicks {
		unix.Close(fd) // ended meanwhile; the number may be a stranger's
		return false
	}
	_ = unix.SetNonblock(fd, true)
	f := os.NewFile(uintptr(fd), "pidfd")
	w.files[m.PID] = f
	go w.wait(m.PID, f) // ends with the process or by drop
	return true
}

func (w *watch) wait(pid int, f *os.File) {
	if awaitPidfd(f) {
		w.ended <- pid // room for every watched member
	}
}

// awaitPidfd waits in the netpoller until the process behind a pidfd has
// ended, or f is closed: then it returns false.
func awaitPidfd(f *os.File) bool {
	rc, err := f.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	_ = rc.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		gone = n > 0 || err != nil && err != unix.EINTR
		return gone
	})
	return gone
}
