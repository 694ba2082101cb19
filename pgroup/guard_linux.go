package pgroup

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// A Guard is a small process that ends a command's tree if the process that
// supervises it is killed. It holds one end of a socket pair: end-of-file
// means that the supervisor is gone. It also keeps the deadline while the
// supervisor is stopped.
type Guard struct {
	pid    int
	conn   int // our end; −1 once it is closed
	sub    *Subreaper
	child  uint64
	reaped bool // then the number may be a stranger's
}

// Descriptors of the guard process.
const (
	guardConn  = 3
	guardPidfd = 4
)

// deadlineActed is what a guard writes before it ends a tree for its deadline.
const deadlineActed = 'd'

// StartGuard starts the program exe with argv, which must call GuardMain with
// what follows argv, to watch over g. The deadline is zero for none. Between
// the start of the command and this call nothing watches over it.
func StartGuard(g *Group, exe string, argv []string, l Ladder, deadline time.Time) (*Guard, error) {
	l = l.withDefaults()
	var at int64
	if !deadline.IsZero() {
		at = platform.MonotonicNow() + int64(time.Until(deadline))
	}
	argv = append(append([]string(nil), argv...),
		strconv.Itoa(g.pid), strconv.FormatBool(g.session), strconv.Itoa(int(l.Signal)),
		l.Grace.String(), l.Settle.String(), strconv.FormatInt(at, 10), g.CgroupPath(), g.token, strconv.FormatUint(g.mark, 10))
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	defer unix.Close(pair[1])
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		unix.Close(pair[0])
		return nil, fmt.Errorf("start guard: %w", err)
	}
	defer null.Close()
	guard := &Guard{conn: pair[0], sub: g.children}
	n := null.Fd()
	pidfd, err := fdOf(g.pidfd)
	if err != nil {
		unix.Close(pair[0])
		return nil, fmt.Errorf("start guard: %w", err)
	}
	guard.pid, guard.child, err = g.children.start(false, func() (int, error) {
		return syscall.ForkExec(exe, argv, &syscall.ProcAttr{
			Files: []uintptr{n, n, n, uintptr(pair[1]), pidfd},
			Env:   []string{}, Dir: "/", Sys: &syscall.SysProcAttr{Setsid: true},
		})
	})
	if err != nil {
		unix.Close(pair[0])
		return nil, fmt.Errorf("start guard %s: %w", exe, err)
	}
	return guard, nil
}

// Died reports, and reaps, a guard that ended although it was not dismissed. A
// guard that has kept the deadline has done its work: it is left to Dismiss.
func (d *Guard) Died() bool {
	if d == nil || d.reaped || d.KeptDeadline() {
		return false
	}
	return d.reap(func() bool { return platform.ReapIfEnded(d.pid) })
}

func (d *Guard) reap(f func() bool) bool {
	if !d.sub.release(d.pid, d.child, f) {
		return false
	}
	d.reaped = true
	unix.Close(d.conn)
	d.conn = -1
	return true
}

// KeptDeadline reports whether the guard has ended the tree for its deadline,
// because this process was stopped.
func (d *Guard) KeptDeadline() bool {
	if d == nil {
		return false
	}
	var b [1]byte
	n, _, err := unix.Recvfrom(d.conn, b[:], unix.MSG_DONTWAIT|unix.MSG_PEEK)
	return err == nil && n == 1 && b[0] == deadlineActed
}

// Release ends the guard without waiting for it: nothing is left to guard.
// Dismiss must follow.
func (d *Guard) Release() {
	if d != nil && !d.reaped {
		_ = unix.Kill(d.pid, syscall.SIGKILL) // our own unreaped child
	}
}

// Dismiss ends the guard, which may not even have come up yet, and reaps it.
// Doing it again does nothing.
func (d *Guard) Dismiss() {
	if d == nil || d.reaped {
		return
	}
	d.Release()
	d.reap(func() bool { _, _, _ = platform.Reap(d.pid); return true })
}

// GuardMain is the guard process. It returns the exit code.
func GuardMain(args []string) int {
	platform.CloseInherited(guardPidfd + 1)
	// It must outlive what is sent to a whole tree; only KILL ends it.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	r, l, at, err := parseGuard(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	unix.CloseOnExec(guardConn)
	unix.CloseOnExec(guardPidfd)
	run := unix.Getppid()
	if at != 0 {
		// The supervisor may be stopped at the deadline, or in the ladder that
		// it began then.
		const late = int64(100 * time.Millisecond)
		for _, by := range []int64{at + late, at + late + int64(max(l.Grace, 0)+l.Settle)} {
			if !awaitEOF(by) && stopped(run) {
				_, _ = unix.Write(guardConn, []byte{deadlineActed})
				return endRemote(r, l)
			}
		}
	}
	awaitEOF(0)
	return endRemote(r, l)
}

func parseGuard(args []string) (r Remote, l Ladder, at int64, err error) {
	if len(args) != 9 {
		return r, l, 0, fmt.Errorf("guard: want 9 arguments, got %d; procsup run starts it, not people", len(args))
	}
	r = Remote{Pidfd: guardPidfd, Session: args[1] == "true", Cgroup: args[6], Token: args[7]}
	if r.PID, err = strconv.Atoi(args[0]); err != nil || r.PID <= 1 {
		return r, l, 0, fmt.Errorf("guard: bad pid %q", args[0])
	}
	sig, err := strconv.Atoi(args[2])
	if err != nil || sig < 0 || sig > 64 { // _NSIG of Linux
		return r, l, 0, fmt.Errorf("guard: bad signal %q", args[2])
	}
	l.Signal = syscall.Signal(sig)
	if l.Grace, err = time.ParseDuration(args[3]); err != nil {
		return r, l, 0, fmt.Errorf("guard: %w", err)
	}
	if l.Settle, err = time.ParseDuration(args[4]); err != nil {
		return r, l, 0, fmt.Errorf("guard: %w", err)
	}
	if at, err = strconv.ParseInt(args[5], 10, 64); err != nil {
		return r, l, 0, fmt.Errorf("guard: %w", err)
	}
	if r.Mark, err = strconv.ParseUint(args[8], 10, 64); err != nil {
		return r, l, 0, fmt.Errorf("guard: %w", err)
	}
	return r, l, at, nil
}

// awaitEOF blocks until the supervisor is gone, or until the monotonic time at
// (0: none), then it returns false. Time in which the machine slept does not
// count, as for every deadline here.
func awaitEOF(at int64) bool {
	for {
		timeout := -1
		if at != 0 {
			left := at - platform.MonotonicNow()
			if left <= 0 {
				return false
			}
			timeout = int(min(left/int64(time.Millisecond)+1, 1<<30))
		}
		p := []unix.PollFd{{Fd: guardConn, Events: unix.POLLIN}}
		n, err := unix.Poll(p, timeout)
		if n > 0 || err != nil && err != unix.EINTR {
			return true
		}
	}
}

// stopped reports whether the supervisor is stopped by job control now.
func stopped(pid int) bool {
	st, err := platform.ReadStat(pid)
	return err == nil && st.State == 'T'
}

func endRemote(r Remote, l Ladder) int {
	g, err := OpenRemote(r)
	if err != nil {
		return 1
	}
	defer g.Release()
	l.Settle = max(l.Settle, 10*time.Second) // nobody waits for a report
	if rep := g.Stop(l, nil); len(rep.Survivors) > 0 {
		return 1
	}
	return 0
}
