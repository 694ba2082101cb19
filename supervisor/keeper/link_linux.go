package keeper

import (
	"fmt"
	"maps"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// A Link is the supervisor's end of the socket. Its methods may be called from
// any goroutine.
type Link struct {
	f  *os.File // non-blocking, in Go's poller
	rc syscall.RawConn

	send sync.Mutex // one sender at a time

	exits    *queue[Exit]
	requests *queue[Request]
	found    *queue[Found]
	gone     chan struct{} // closed by read
	tasks    sync.WaitGroup

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]chan message // for acks; buffered
	marks   map[string]uint64       // of runs that are not spawned yet
	marked  bool                    // the keeper knows that we mark
	mirror  mirror
	lost    chan struct{} // closed when the keeper will have no successor
}

// Connect takes the keeper's socket and everything it holds. The descriptor
// belongs to the Link from then on, also when it fails, and is closed on exec.
// It blocks until the keeper has handed over, which takes milliseconds.
// ErrProtocol, ErrDescriptors or ErrGone is in the chain of an error; all that
// was received is closed then, and the keeper still has it.
func Connect(fd int) (*Link, *Handover, error) {
	platform.SetCloexec(fd)
	platform.SetName(nameSupervisor)
	if t, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || t != unix.SOCK_SEQPACKET {
		return nil, nil, fmt.Errorf("connect to keeper: descriptor %d: %w", fd, ErrProtocol)
	}
	_ = unix.SetNonblock(fd, true)
	l := &Link{
		f: os.NewFile(uintptr(fd), "keeper"), gone: make(chan struct{}), waiting: map[uint64]chan message{}, marks: map[string]uint64{}, lost: make(chan struct{}),
		exits: newQueue[Exit](), requests: newQueue[Request](), found: newQueue[Found](),
	}
	l.mirror.init()
	var err error
	if l.rc, err = l.f.SyscallConn(); err != nil {
		l.f.Close()
		return nil, nil, fmt.Errorf("connect to keeper: %w", err)
	}
	in := new(receiver)
	h, err := l.take(in)
	if err != nil {
		l.f.Close()
		l.mirror.close()
		for _, r := range h.Runs {
			closeFiles(r.files())
		}
		closeFiles(h.Files)
		return nil, nil, fmt.Errorf("connect to keeper: %w", err)
	}
	l.tasks.Go(func() { l.read(in) })                            // ends with the keeper or by Close
	l.tasks.Go(func() { l.exits.deliver(); close(l.exits.out) }) // these end after read, or by Close
	l.tasks.Go(func() { l.found.deliver(); close(l.found.out) })
	l.tasks.Go(l.requests.deliver)
	return l, h, nil
}

// Close lets go of the socket and waits for the Link's goroutines. For the
// keeper it is as if the supervisor had died.
func (l *Link) Close() error {
	err := l.f.Close()
	l.hopeless()
	l.exits.stop()
	l.found.stop()
	l.requests.stop()
	l.tasks.Wait()
	return err
}

// take receives the hand-over.
func (l *Link) take(in *receiver) (*Handover, error) {
	h := &Handover{}
	m, fds, err := l.packet(in)
	if err != nil {
		return h, err
	}
	closeAll(fds)
	if m.Kind != kindHello {
		return h, fmt.Errorf("%w: it said %q", ErrProtocol, m.Kind)
	}
	if h.Version, err = agree(m.Version, m.Oldest); err != nil {
		return h, l.demand(m, err)
	}
	h.Generation, h.KeeperPID = m.Generation, m.KeeperPID
	for _, n := range m.Files {
		if n < 3 || !platform.SetCloexec(n) {
			return h, fmt.Errorf("%w: descriptor %d is not open", ErrProtocol, n)
		}
		h.Files = append(h.Files, os.NewFile(uintptr(n), "activation"))
		l.mirror.files = append(l.mirror.files, dup(n))
	}
	l.mirror.gen = h.Generation
	if err := l.say(message{Kind: kindHello, Version: h.Version, Pidfds: true}, nil); err != nil {
		return h, err
	}
	for {
		m, fds, err := l.packet(in)
		switch {
		case err != nil:
			return h, err
		case m.Kind == kindEnd:
			closeAll(fds)
			return h, nil
		case m.Kind == kindRuns:
			err = l.takeRuns(h, m, fds)
		case m.Kind == kindWill:
			l.takeWill(h, m, fds)
		default:
			closeAll(fds)
			l.dispatch(m)
		}
		if err != nil {
			return h, err
		}
	}
}

// takeRuns takes one page, or closes it if descriptors are missing.
func (l *Link) takeRuns(h *Handover, m message, fds []int) error {
	want := 0
	for _, r := range m.Runs {
		want += r.descriptors()
	}
	ack := message{Kind: kindAck, Seq: m.Seq, Count: len(fds)}
	if len(fds) != want {
		closeAll(fds)
		ack.Error = "too few descriptors"
		_ = l.say(ack, nil)
		soft, _ := platform.FDLimit()
		return fmt.Errorf("%w: received %d of %d, the limit is %d", ErrDescriptors, len(fds), want, soft)
	}
	for _, b := range m.Runs {
		r := Run{ID: b.ID, Token: b.Token, PID: b.PID, StartTicks: b.StartTicks, Pending: b.Pending, Exit: b.Exit.exit()}
		for _, fd := range fds[:b.Pipes] {
			r.Pipes = append(r.Pipes, os.NewFile(uintptr(fd), "pipe"))
		}
		if b.Pidfd {
			r.Pidfd = os.NewFile(uintptr(fds[b.Pipes]), "pidfd")
		}
		fds = fds[b.descriptors():]
		h.Runs = append(h.Runs, r)
		l.mirror.addRun(r, b.Mark)
	}
	return l.say(ack, nil)
}

func (l *Link) takeWill(h *Handover, m message, fds []int) {
	l.mirror.inherit(m.Will, fds)
	if l.mirror.will != nil {
		h.Carry = map[string]string{}
		maps.Copy(h.Carry, m.Will.Carry)
	}
}

// demand asks a keeper that is too old for us to execute our program, if it can
// do that and we can read what it leaves.
func (l *Link) demand(m message, why error) error {
	_, oldest := protocols()
	if m.Estate < 1 || m.Estate > estateFormat || m.Version >= oldest {
		return why
	}
	if err := l.say(message{Kind: kindDemand, Version: oldest}, nil); err != nil {
		return err
	}
	return fmt.Errorf("%w; it is to execute this program and go on", why)
}

// files are the descriptors of a run.
func (r *Run) files() []*os.File {
	if r.Pidfd != nil {
		return append(r.Pipes[:len(r.Pipes):len(r.Pipes)], r.Pidfd)
	}
	return r.Pipes
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// packet waits for the next message.
func (l *Link) packet(in *receiver) (m message, fds []int, err error) {
	cerr := l.rc.Read(func(fd uintptr) bool {
		m, fds, err = in.packet(int(fd))
		return err != unix.EAGAIN
	})
	if err == nil && cerr != nil || err == errClosed {
		err = ErrGone
	}
	return m, fds, err
}

// read gives what the keeper says to whom it is for, until one end is closed.
func (l *Link) read(in *receiver) {
	for {
		m, fds, err := l.packet(in)
		if err != nil {
			close(l.gone)
			l.exits.finish()
			l.found.finish()
			return
		}
		closeAll(fds)
		l.dispatch(m)
	}
}

func (l *Link) dispatch(m message) {
	switch m.Kind {
	case kindAck:
		l.mu.Lock()
		answer := l.waiting[m.Seq]
		delete(l.waiting, m.Seq)
		l.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	case kindExit:
		e := m.Exit.exit()
		l.update(func(m *mirror) { m.ended(e) })
		l.exits.put(*e)
	case kindFound:
		f := Found{ID: m.ID, PID: m.PID, StartTicks: m.StartTicks}
		l.update(func(m *mirror) { m.found(f) })
		l.found.put(f)
	case kindShutdown:
		by := time.Now().Add(time.Duration(m.DeadlineMS) * time.Millisecond)
		l.update(func(m *mirror) { m.stopBy = by })
		l.requests.put(Request{Deadline: by})
	case kindReplace:
		l.requests.put(Request{Replace: true})
	}
}

func (l *Link) update(f func(*mirror)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.mirror)
}

// say sends one message, waiting for room.
func (l *Link) say(m message, fds []int) error {
	b, err := encode(m)
	if err != nil {
		return err
	}
	l.send.Lock()
	defer l.send.Unlock()
	cerr := l.rc.Write(func(fd uintptr) bool {
		err = sendPacket(int(fd), b, fds)
		return err != unix.EAGAIN
	})
	switch {
	case err == errClosed, err == nil && cerr != nil, err == unix.EAGAIN:
		return ErrGone
	}
	return err
}
