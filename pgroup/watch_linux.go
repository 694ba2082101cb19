package pgroup

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// maxWatched bounds the descriptors of one watch; whoever is over it is
// looked at again once the watched ones have ended.
const maxWatched = 64

// A watch waits for members to end, each through a pidfd in the netpoller, so
// that waiting costs neither threads nor polling.
type watch struct {
	sub   *Subreaper
	files map[int]*os.File // by PID; open while awaited
	ended chan int         // PIDs as they end
}

func newWatch(sub *Subreaper) *watch {
	return &watch{sub: sub, files: map[int]*os.File{}, ended: make(chan int, maxWatched)}
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

// await waits until leader is closed and every given member has ended, as far
// as they can be watched. It returns false when the deadline (zero: none)
// passed or next was received first.
func (w *watch) await(ms []platform.Stat, leader <-chan struct{}, deadline time.Time, next <-chan struct{}) bool {
	for _, m := range ms {
		w.add(m)
	}
	var timeout, recheck <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	if len(w.files) == 0 && ended(leader) {
		// Nobody can be watched, yet something is left: a process between
		// two parents, or the control group is about to be empty.
		recheck = time.After(time.Millisecond)
	}
	for len(w.files) > 0 || leader != nil || recheck != nil {
		select {
		case pid := <-w.ended:
			w.drop(pid)
			w.sub.reapMember(pid)
		case <-leader:
			leader = nil
		case <-recheck:
			recheck = nil
		case <-timeout:
			return false
		case <-next:
			return false
		}
	}
	return true
}

func (w *watch) add(m platform.Stat) {
	if _, ok := w.files[m.PID]; ok || len(w.files) >= maxWatched {
		return
	}
	fd, err := platform.OpenPidfd(m.PID)
	if err != nil {
		return
	}
	_ = unix.SetNonblock(fd, true)
	f := os.NewFile(uintptr(fd), "pidfd")
	w.files[m.PID] = f
	go w.wait(m.PID, f) // ends with the process or by drop
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
