package keeper

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

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
		f: os.NewFile(uintptr(fd), "keeper"), gone: make(chan struct{}), waiting: map[uint64]chan message{}, marks: map[string]uint64{},
		exits: newQueue[Exit](), requests: newQueue[Request](), found: newQueue[Found](),
	}
	var err error
	if l.rc, err = l.f.SyscallConn(); err != nil {
		l.f.Close()
		return nil, nil, fmt.Errorf("connect to keeper: %w", err)
	}
	in := new(receiver)
	h, err := l.take(in)
	if err != nil {
		l.f.Close()
		for _, r := range h.Runs {
			closeFiles(r.Pipes)
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
		return h, err
	}
	h.Generation, h.KeeperPID = m.Generation, m.KeeperPID
	for _, n := range m.Files {
		if n < 3 || !platform.SetCloexec(n) {
			return h, fmt.Errorf("%w: descriptor %d is not open", ErrProtocol, n)
		}
		h.Files = append(h.Files, os.NewFile(uintptr(n), "activation"))
	}
	if err := l.say(message{Kind: kindHello, Version: h.Version}, nil); err != nil {
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
		want += r.Pipes
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
		fds = fds[b.Pipes:]
		h.Runs = append(h.Runs, r)
	}
	return l.say(ack, nil)
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
		l.exits.put(*m.Exit.exit())
	case kindFound:
		l.found.put(Found{ID: m.ID, PID: m.PID, StartTicks: m.StartTicks})
	case kindShutdown:
		l.requests.put(Request{Deadline: time.Now().Add(time.Duration(m.DeadlineMS) * time.Millisecond)})
	case kindReplace:
		l.requests.put(Request{Replace: true})
	}
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

// Register gives the keeper a second descriptor of each pipe of a run that is
// about to be spawned. token is what its command will have in PROCSUP_RUN; id
// is that path's last element. ErrRefused: the keeper holds nothing of it and
// the run must not be spawned. The files stay the caller's.
func (l *Link) Register(id, token string, pipes []*os.File) error {
	if !validID(id) || len(token) > maxToken || !utf8.ValidString(token) || len(pipes) > maxPipes {
		return fmt.Errorf("register %.200q with %d pipes: %w", id, len(pipes), os.ErrInvalid)
	}
	fds := make([]int, len(pipes))
	for i, f := range pipes {
		rc, err := f.SyscallConn() // Fd would make the pipe blocking for all who share it
		if err == nil {
			err = rc.Control(func(fd uintptr) { fds[i] = int(fd) })
		}
		if err != nil {
			return fmt.Errorf("register %s: %w", id, err)
		}
	}
	answer := make(chan message, 1)
	l.mu.Lock()
	l.seq++
	m := message{Kind: kindRegister, Seq: l.seq, ID: id, Token: token, Pipes: len(pipes)}
	l.waiting[m.Seq] = answer
	l.mu.Unlock()
	err := l.say(m, fds)
	runtime.KeepAlive(pipes)
	if err == nil {
		err = l.await(id, answer, len(pipes))
	}
	if err != nil {
		l.mu.Lock()
		delete(l.waiting, m.Seq)
		l.mu.Unlock()
		return fmt.Errorf("register %s: %w", id, err)
	}
	return nil
}

func (l *Link) await(id string, answer <-chan message, pipes int) error {
	select {
	case m := <-answer:
		if m.Error != "" || m.Count != pipes {
			return fmt.Errorf("%w: %s", ErrRefused, m.Error)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.marks[id] = m.Mark
		return nil
	case <-l.gone:
		return ErrGone
	}
}

// Mark runs start, which spawns a registered run's command and returns once it
// has executed, so that the command can be told from all others whatever
// becomes of it and of this process before Spawned. Use it for all spawns or for
// none; without it, a command that ends just as its supervisor dies may be lost.
// Calls wait for each other. A nil Link runs start.
func (l *Link) Mark(id string, start func()) {
	if l == nil {
		start()
		return
	}
	l.mu.Lock()
	mark, tell := l.marks[id], !l.marked
	delete(l.marks, id)
	l.mu.Unlock()
	switch {
	case mark == 0: // an older keeper
		start()
		return
	case tell && platform.MarkChildren(mark, func() {}):
		if l.say(message{Kind: kindMarks}, nil) == nil {
			l.mu.Lock()
			l.marked = true
			l.mu.Unlock()
		}
	}
	platform.MarkChildren(mark, start)
}

// Spawned tells which process a registered run's command is. It is to be called
// at once after the spawn and needs no answer: the message outlives this
// process.
func (l *Link) Spawned(id string, pid int, startTicks uint64) error {
	return l.tell("spawned "+id, message{Kind: kindSpawned, ID: id, PID: pid, StartTicks: startTicks})
}

// Withdraw makes the keeper forget a run that could not be spawned.
func (l *Link) Withdraw(id string) error {
	return l.tell("withdraw "+id, message{Kind: kindWithdraw, ID: id})
}

// Settled says that the end of a run is recorded: the keeper closes its pipes
// and, if it is the command's parent, frees the number.
func (l *Link) Settled(id string) error {
	return l.tell("settled "+id, message{Kind: kindSettled, ID: id})
}

// Ready says that this supervisor serves.
func (l *Link) Ready() error { return l.tell("ready", message{Kind: kindReady}) }

// Replace makes the next supervisor execute exe, "" = the same program, and
// says that the death of this one, which must follow, is no crash.
func (l *Link) Replace(exe string) error {
	return l.tell("replace", message{Kind: kindReplace, Exe: []byte(exe)})
}

// ShutdownDone says that all is ended and recorded. When this supervisor then
// exits with DoneCode, the keeper ends with code 0.
func (l *Link) ShutdownDone() error { return l.tell("shutdown done", message{Kind: kindDone}) }

func (l *Link) tell(what string, m message) error {
	if err := l.say(m, nil); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Exits gives the ends of adopted commands that were not in the hand-over, in
// the order in which the keeper saw them. It is closed when the keeper is gone, and by Close.
func (l *Link) Exits() <-chan Exit { return l.exits.out }

// Found gives what became of pending runs. It is closed as Exits is.
func (l *Link) Found() <-chan Found { return l.found.out }

// Requests gives what the keeper asks for. It is never closed.
func (l *Link) Requests() <-chan Request { return l.requests.out }

// Gone is closed when the keeper has died, or Close was called.
func (l *Link) Gone() <-chan struct{} { return l.gone }
