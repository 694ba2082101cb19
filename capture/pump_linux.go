package capture

import (
	"errors"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// An input is the read end of a pipe (or of anything else that can be read).
// Only its pump uses it.
type input struct {
	fd     int
	wake   func() // called by the poller when it is worth reading
	poller *poller
	copies bool // splice does not work from it
	size   int  // of the pipe
}

func newPipe() (r, w *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(p[0]), "pipe"), os.NewFile(uintptr(p[1]), "pipe"), nil
}

// takeInput makes an input of f and closes f. The descriptor leaves Go's
// poller: a pipe that is in an epoll set while its stream is busy costs each
// of the command's writes a wake-up of that set.
func takeInput(f *os.File) (*input, error) {
	defer f.Close()
	in := &input{fd: -1}
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

// watch gets hold of the poller. Once armed, wake is called.
func (in *input) watch(wake func()) (err error) {
	in.wake = wake
	in.poller, err = pollers.get()
	return err
}

// close closes the descriptor. The input is not armed.
func (in *input) close() {
	if in.poller != nil {
		pollers.put()
	}
	unix.Close(in.fd)
}

// arm has wake called once when there is something to read, soon if there is.
func (in *input) arm() {
	if err := in.poller.arm(in); err != nil {
		go in.wake() // it is a file, always readable; returns at once
	}
}

func (in *input) disarm() { in.poller.disarm(in) }

// waiting returns how many bytes there are.
func (in *input) waiting() int64 {
	n, err := unix.IoctlGetInt(in.fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return int64(n)
}

// look reports, taking nothing, that there are no bytes: errDry for now, io.EOF
// for ever.
func (in *input) look() error {
	p := []unix.PollFd{{Fd: int32(in.fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, 0)
		switch {
		case err == unix.EINTR:
		case err != nil || p[0].Revents&(unix.POLLIN|unix.POLLERR|unix.POLLNVAL) != 0:
			return nil // moving them will tell
		case p[0].Revents&unix.POLLHUP != 0:
			return io.EOF
		default:
			return errDry
		}
	}
}

// splice moves up to n bytes to f at off.
func (in *input) splice(f *os.File, off, n int64) (int64, error) {
	for {
		k, err := unix.Splice(in.fd, nil, int(f.Fd()), &off, int(n), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, errDry
		case err == unix.EINVAL:
			return 0, errors.ErrUnsupported
		case err != nil:
			return 0, err
		case k == 0:
			return 0, io.EOF
		default:
			return k, nil
		}
	}
}

func (in *input) read(p []byte) (int, error) {
	for {
		n, err := unix.Read(in.fd, p)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, errDry
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// resize sets the pipe's capacity and reports whether it has it. It is refused
// while more than that is in it, and to a user whose pipes hold too much.
func (in *input) resize(n int) bool {
	if in.copies {
		return false
	}
	got, err := unix.FcntlInt(uintptr(in.fd), unix.F_SETPIPE_SZ, n)
	if err != nil {
		return false
	}
	in.size = got
	return true
}

// work moves bytes until the pipe stays empty. Between moves it sleeps in the
// kernel: a timer of the runtime has milliseconds, and a wait on the pipe would
// be woken by each small write. The first bytes after a rest are moved at once,
// so that a short command's end is not held up.
func (p *pump) work() {
	last := p.s.last.Load()
	fresh := last == 0 || p.s.log.now()-last > restWait
	busy := false
	for n := 1; !p.stopped(); n++ {
		if n%64 == 0 {
			runtime.Gosched()
		}
		if !fresh && !p.s.eager.Load() {
			waiting := p.in.waiting()
			if waiting == 0 && n > 1 && !busy {
				return
			}
			if p.pause > 0 && waiting < p.little() && (waiting > 0 || busy) {
				nap(p.pause)
			}
		}
		fresh = false
		room := p.s.awaitWindow(chunkMax, p.quit)
		if room == 0 {
			return // stopped
		}
		k, err := p.move(room)
		if err != nil {
			return // dry, or the end
		}
		busy = k >= busyChunk
		p.adapt(k)
		p.enlarge(k)
	}
}

// little is how many bytes have to wait for more.
func (p *pump) little() int64 {
	if p.in.copies {
		return batchUntil
	}
	return min(batchUntil, int64(p.in.size)/4)
}

// adapt chooses the pause so that a good chunk gathers: large enough for the
// switches not to matter, small enough for the writer and the pump to take
// turns, as the kernel locks the pipe while it is spliced. A pipe that is found
// full and cannot be enlarged is not let wait at all.
func (p *pump) adapt(moved int64) {
	size := int64(p.in.size)
	if p.in.copies {
		size = pipeSmall
	}
	good := min(chunkGood, size/2)
	switch {
	case moved >= size*3/4 && p.pause <= batchLeast:
		p.pause = 0
	case moved > good:
		p.pause /= 2
		if moved < size*3/4 {
			p.pause = max(p.pause, batchLeast)
		}
	case moved < busyChunk:
		p.pause = batchWait
	case moved < good/4:
		p.pause = min(max(p.pause*2, batchLeast), batchMost)
	}
}

// enlarge gives a pipe that was nearly full more room.
func (p *pump) enlarge(moved int64) {
	if p.grown || p.in.copies || moved < int64(p.in.size)*3/4 || !p.grow.take() {
		return
	}
	if p.grown = p.in.resize(pipeLarge); !p.grown {
		p.grow.put()
	}
}

// napping bounds the threads that sleep for pumps; a thread once made stays.
var napping atomic.Int32

const mostNaps = 4

// nap lets some time pass.
func nap(d time.Duration) {
	defer napping.Add(-1)
	if napping.Add(1) > mostNaps {
		time.Sleep(d)
		return
	}
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}
