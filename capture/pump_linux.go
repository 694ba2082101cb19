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

// watch gets hold of the poller. Once armed, wake is called.
func (in *Pipe) watch(wake func()) (err error) {
	in.wake = wake
	in.poller, err = pollers.get()
	return err
}

// arm has wake called once when there is something to read, soon if there is.
func (in *Pipe) arm() {
	if err := in.poller.arm(in); err != nil {
		go in.wake() // it is a file, always readable; returns at once
	}
}

func (in *Pipe) disarm() { in.poller.disarm(in) }

// waiting returns how many bytes there are.
func (in *Pipe) waiting() int64 {
	n, err := unix.IoctlGetInt(in.fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return int64(n)
}

// look reports, taking nothing, that there are no bytes: errDry for now, io.EOF
// for ever.
func (in *Pipe) look() error {
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
func (in *Pipe) splice(f *os.File, off, n int64) (int64, error) {
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

func (in *Pipe) read(p []byte) (int, error) {
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
func (in *Pipe) resize(n int) bool {
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
	return min(batchUntil, p.in.capacity()/4)
}

// adapt chooses the pause so that a good chunk gathers: large enough for the
// switches not to matter, small enough for the writer and the pump to take
// turns, as the kernel locks the pipe while it is spliced. A pipe that is found
// full and cannot be enlarged is not let wait at all.
func (p *pump) adapt(moved int64) {
	size := p.in.capacity()
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
	if p.grown || p.in.copies || moved < p.in.capacity()*3/4 || !p.grow.take() {
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
