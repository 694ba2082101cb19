package capture

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A poller tells inputs that there is something to read. It is an epoll set of
// our own, watched by one goroutine through Go's poller, so that a pipe can be
// taken out of it while its stream is busy.
type poller struct {
	f    *os.File
	conn syscall.RawConn
	done chan struct{}

	mu     sync.Mutex
	inputs map[int32]*Pipe
}

// batchEvents is how many inputs are told at a time.
const batchEvents = 64

// pollers is the one poller of the process, there while any pump is, and a
// little longer. It is
// shared because an epoll set a log would cost each a descriptor.
var pollers pollerRef

type pollerRef struct {
	mu   sync.Mutex
	p    *poller
	refs int
	rest *time.Timer // closes p, which nobody uses; nil: somebody does
}

// pollerRest is how long the poller stays unused: commands that come one after
// the other do not make one each.
const pollerRest = 100 * time.Millisecond

func (r *pollerRef) get() (*poller, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.p == nil {
		p, err := newPoller()
		if err != nil {
			return nil, err
		}
		r.p = p
	}
	if r.rest != nil {
		r.rest.Stop()
		r.rest = nil
	}
	r.refs++
	return r.p, nil
}

func (r *pollerRef) put() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refs--; r.refs == 0 {
		r.rest = time.AfterFunc(pollerRest, r.close)
	}
}

func (r *pollerRef) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refs > 0 || r.p == nil { // taken again meanwhile
		return
	}
	r.p.f.Close()
	<-r.p.done
	r.p, r.rest = nil, nil
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	p := &poller{f: os.NewFile(uintptr(fd), "epoll"), done: make(chan struct{}), inputs: make(map[int32]*Pipe)}
	if p.conn, err = p.f.SyscallConn(); err != nil {
		p.f.Close()
		return nil, err
	}
	go p.run() // ends when f is closed; put waits for it
	return p, nil
}

func (p *poller) run() {
	defer close(p.done)
	events := make([]unix.EpollEvent, batchEvents)
	for {
		err := p.conn.Read(func(fd uintptr) bool {
			n, _ := unix.EpollWait(int(fd), events, 0)
			p.tell(events[:max(n, 0)])
			return n > 0
		})
		if err != nil {
			return
		}
	}
}

// tell wakes the inputs the events are of. An input that was disarmed
// meanwhile may be woken too.
func (p *poller) tell(events []unix.EpollEvent) {
	var ready [batchEvents]*Pipe
	p.mu.Lock()
	for i, e := range events {
		ready[i] = p.inputs[e.Fd]
	}
	p.mu.Unlock()
	for _, in := range ready[:len(events)] {
		if in != nil {
			in.wake()
		}
	}
}

// arm adds the input for one event.
func (p *poller) arm(in *Pipe) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inputs[int32(in.fd)] = in
	return p.control(unix.EPOLL_CTL_ADD, in.fd)
}

// disarm takes it out; a descriptor of the pipe elsewhere would keep it in.
func (p *poller) disarm(in *Pipe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inputs[int32(in.fd)] == in {
		delete(p.inputs, int32(in.fd))
		_ = p.control(unix.EPOLL_CTL_DEL, in.fd)
	}
}

func (p *poller) control(op, fd int) (err error) {
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	cerr := p.conn.Control(func(ep uintptr) { err = unix.EpollCtl(int(ep), op, fd, &e) })
	if cerr != nil {
		return cerr
	}
	return err
}
