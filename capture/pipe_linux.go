package capture

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A Pipe is the read end of a pipe (or of anything else that can be read) for
// [Log.AttachPipe]. Only its pump reads it, which closes it at its end.
type Pipe struct {
	fd     int
	wake   func() // called by the poller when it is worth reading
	poller *poller
	copies bool // splice does not work from it
	size   int  // of the pipe; 0: not looked at yet

	mu     sync.Mutex // of Control against close
	closed bool
}

// NewPipe makes a pipe and returns the end for a Log, and the one for the command.
func NewPipe() (r *Pipe, w *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	// The flag belongs to the end (pipe(7)): the command's stays blocking.
	if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return &Pipe{fd: p[0]}, os.NewFile(uintptr(p[1]), "pipe"), nil
}

// DupPipe makes a Pipe of a second descriptor of f, which stays the caller's
// and is to be closed before the Pipe is attached: one that is in an epoll set,
// such as Go's, while its stream is busy costs each of the command's writes a
// wake-up of that set.
func DupPipe(f *os.File) (*Pipe, error) {
	in := &Pipe{fd: -1}
	c, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := c.Control(func(fd uintptr) {
		in.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
	})
	if err = errors.Join(cerr, err); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(in.fd, true); err != nil {
		unix.Close(in.fd)
		return nil, err
	}
	if in.size, err = unix.FcntlInt(uintptr(in.fd), unix.F_GETPIPE_SZ, 0); err != nil {
		in.copies = true // not a pipe
	}
	return in, nil
}

// Control calls f with the descriptor, which stays open meanwhile: f must not
// wait. After Close it fails with os.ErrClosed.
func (in *Pipe) Control(f func(fd uintptr)) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return os.ErrClosed
	}
	f(uintptr(in.fd))
	return nil
}

// Close closes a Pipe that was not attached; one that was is its Log's.
func (in *Pipe) Close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return os.ErrClosed
	}
	in.closed = true
	return unix.Close(in.fd)
}

// rest gives up the poller. The pipe is not armed.
func (in *Pipe) rest() {
	if in.poller != nil {
		pollers.put()
		in.poller = nil
	}
}

// capacity is how many bytes fit into the pipe.
func (in *Pipe) capacity() int64 {
	if in.size == 0 && !in.copies {
		n, err := unix.FcntlInt(uintptr(in.fd), unix.F_GETPIPE_SZ, 0)
		if err != nil {
			n = pipeSmall
		}
		in.size = n
	}
	return int64(in.size)
}

// takePipe makes a Pipe of f and closes f.
func takePipe(f *os.File) (*Pipe, error) {
	defer f.Close()
	return DupPipe(f)
}
