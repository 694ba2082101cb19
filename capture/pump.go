package capture

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	idleClose  = time.Second            // a stream quiet for so long has its files closed and its pipe shrunk
	batchWait  = 250 * time.Microsecond // what is let pass when little is waiting and nobody waits for it
	batchLeast = 60 * time.Microsecond  // in a fast stream
	batchMost  = time.Millisecond       // in one of small writes
	batchUntil = 16 << 10               // bytes waiting that are no longer little
	busyChunk  = 4 << 10                // a stream that moves as much at a time is busy
	chunkGood  = 256 << 10              // what to gather
	restWait   = int64(5 * time.Millisecond)
)

// A pump moves what comes out of one pipe to one stream. It has a goroutine
// only while there is something to move: a thousand quiet streams cost their
// structs. The goroutine that runs is the only reader of the pipe.
type pump struct {
	s    *Stream
	in   *Pipe
	grow *Grow

	quit   chan struct{} // closed by stop
	once   sync.Once
	done   chan struct{} // closed when the pump has ended
	refuse atomic.Bool   // end without taking what is in the pipe

	mu      sync.Mutex
	running bool // there is a goroutine; else the input is armed
	ended   bool

	// What follows belongs to the goroutine that runs, and to shrink while none does.
	grown bool          // holds one of grow
	pause time.Duration // how long to let bytes gather
	buf   []byte
	eof   bool // the pipe gave all it had; read by others after done
}

// newPump starts a pump, which ends at end-of-file or by stop.
func newPump(s *Stream, in *Pipe, g *Grow) (*pump, error) {
	p := &pump{s: s, in: in, grow: g, pause: batchWait, quit: make(chan struct{}), done: make(chan struct{})}
	if err := in.watch(p.wake); err != nil {
		return nil, err
	}
	s.addPipe()
	p.mu.Lock() // against stop
	defer p.mu.Unlock()
	in.arm() // not wake: a pipe in which nothing is yet needs no open spool
	return p, nil
}

// stop makes the pump take what is in the pipe now and end.
func (p *pump) stop() {
	p.once.Do(func() { close(p.quit) })
	p.wake()
}

// stopped reports whether stop was called.
func (p *pump) stopped() bool {
	select {
	case <-p.quit:
		return true
	default:
		return false
	}
}

// wake has a goroutine look at the pipe, unless one is at it.
func (p *pump) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running || p.ended {
		return
	}
	p.running = true
	go p.run() // ends when the pipe is dry; Drain and Close wait for done
}

// run moves what there is, and then leaves the pipe to the poller, or ends.
func (p *pump) run() {
	p.in.disarm()
	for {
		p.work()
		if p.stopped() && !p.eof && !p.refuse.Load() {
			p.finish()
		}
		if p.eof || p.stopped() {
			p.end()
			return
		}
		p.buf = nil
		if p.sleep() {
			return
		}
	}
}

// sleep arms the input for the next bytes. It reports false when the pump has
// been stopped meanwhile.
func (p *pump) sleep() bool {
	p.s.wmu.Lock()
	p.s.restLater()
	p.s.wmu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped() {
		return false
	}
	p.running = false
	p.in.arm()
	return true
}

// end gives everything back. A pipe that is not at its end stays open until
// LetGo, except for one whose bytes are refused.
func (p *pump) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.in.rest()
	if p.eof || p.refuse.Load() {
		p.in.Close()
	}
	if p.grown {
		p.grow.put()
	}
	p.s.wmu.Lock()
	p.s.rest()
	p.s.wmu.Unlock()
	p.s.log.index.idle()
	p.s.closePipe()
	close(p.done)
}

// shrink gives the room of a pipe back that has become quiet.
func (p *pump) shrink() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running && !p.ended && p.grown && p.in.resize(pipeSmall) {
		p.grown = false
		p.grow.put()
	}
}

// finish takes what is in the pipe and no more, so that a writer that goes on
// cannot keep the pump.
func (p *pump) finish() {
	left := p.in.waiting()
	for left > 0 && !p.eof {
		n, err := p.move(p.s.awaitWindow(left, nil))
		if n == 0 && err != nil {
			return
		}
		left -= n
	}
	if !p.eof {
		p.move(1) // the end itself, if it is next
	}
}

// move moves up to n bytes and returns how many. The error is errDry when
// there are none, io.EOF at the end.
func (p *pump) move(n int64) (int64, error) {
	s := p.s
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.w.f == nil && !p.in.copies { // do not open it for nothing
		if err := p.in.look(); err != nil {
			p.eof = errors.Is(err, io.EOF)
			return 0, err
		}
	}
	if !p.in.copies {
		room, err := s.begin(n)
		if err == nil {
			var k int64
			k, err = p.in.splice(s.w.f, s.total.Load()-s.w.seg.start, room)
			switch {
			case err == nil:
				s.publish(k)
				return k, nil
			case errors.Is(err, errDry):
				return 0, err
			case errors.Is(err, io.EOF):
				p.eof = true
				return 0, err
			case errors.Is(err, errors.ErrUnsupported):
				p.in.copies = true
			default:
				s.fail(err)
			}
		}
	}
	return p.read(n)
}

// read moves bytes by way of memory, where splice cannot. s.wmu is held.
func (p *pump) read(n int64) (int64, error) {
	if p.buf == nil {
		p.buf = make([]byte, pipeSmall)
	}
	k, err := p.in.read(p.buf[:min(n, int64(len(p.buf)))])
	if k > 0 {
		p.s.put(p.buf[:k])
		return int64(k), nil
	}
	if !errors.Is(err, errDry) {
		p.eof = true
	}
	return 0, err
}

// errDry says that a pipe has nothing now.
var errDry = errors.New("pipe is empty")
