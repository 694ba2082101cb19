package keeper

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A poller is an epoll instance that waits inside Go's own, so that waiting
// blocks no thread and can have a deadline. Its list of what is ready is in the
// order in which things became ready: with pidfds, the order of ends.
type poller struct {
	fd   int
	f    *os.File // nil: only asked, never waited for
	rc   syscall.RawConn
	till time.Time
}

// newPoller makes one that is only asked and may be added to another.
func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	return &poller{fd: fd}, nil
}

// newWaiter makes one for wait.
func newWaiter() (*poller, error) {
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	_ = unix.SetNonblock(p.fd, true) // which makes NewFile use Go's poller
	p.f = os.NewFile(uintptr(p.fd), "epoll")
	if p.rc, err = p.f.SyscallConn(); err == nil {
		err = p.f.SetReadDeadline(time.Time{})
	}
	if err != nil {
		p.f.Close()
		return nil, fmt.Errorf("wait in epoll: %w", err)
	}
	return p, nil
}

func (p *poller) close() {
	if p.f != nil {
		p.f.Close()
		return
	}
	_ = unix.Close(p.fd)
}

// A tag comes back with the events of what it was added with: no descriptor,
// whose number may have another owner by then.
type tag struct{ what, which int32 }

func (p *poller) add(fd int, events uint32, t tag) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, events, t)
}

func (p *poller) control(op, fd int, events uint32, t tag) error {
	ev := unix.EpollEvent{Events: events, Fd: t.what, Pad: t.which}
	if err := unix.EpollCtl(p.fd, op, fd, &ev); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

func (p *poller) remove(fd int) { _ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// ready returns what is ready now, first come first.
func (p *poller) ready(buf []unix.EpollEvent) []unix.EpollEvent {
	for {
		n, err := unix.EpollWait(p.fd, buf, 0)
		if err != unix.EINTR {
			return buf[:max(n, 0)]
		}
	}
}

// wait returns once something is ready, or the time has come (zero: never).
func (p *poller) wait(buf []unix.EpollEvent, till time.Time) (out []unix.EpollEvent) {
	if !till.Equal(p.till) {
		p.till = till
		_ = p.f.SetReadDeadline(till)
	}
	err := p.rc.Read(func(uintptr) bool {
		out = p.ready(buf)
		return len(out) > 0
	})
	if err != nil { // the deadline; one that is over when it is set would hide what is ready
		out = p.ready(buf)
	}
	return out
}
