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

// A pump moves what comes out of one pipe to one stream. Its goroutine is the
// only reader of the pipe.
type pump struct {
	s    *Stream
	in   *input
	grow *Grow

	grown bool          // holds one of grow
	pause time.Duration // how long to let bytes gather
	buf   []byte

	quit   chan struct{}
	once   sync.Once
	done   chan struct{} // closed when the pump has stopped
	refuse atomic.Bool   // stop without taking what is in the pipe
	eof    bool          // the pipe gave all it had; read after done
}

func newPump(s *Stream, in *input, g *Grow) (*pump, error) {
	if err := in.watch(); err != nil {
		return nil, err
	}
	return &pump{s: s, in: in, grow: g, pause: batchWait, quit: make(chan struct{}), done: make(chan struct{})}, nil
}

// stop makes the pump take what is in the pipe now and end.
func (p *pump) stop() { p.once.Do(func() { close(p.quit) }) }

// stopped reports whether stop was called.
func (p *pump) stopped() bool {
	select {
	case <-p.quit:
		return true
	default:
		return false
	}
}

// run is the life of the pump.
func (p *pump) run() {
	defer close(p.done)
	defer p.s.closePipe()
	defer p.in.close()
	for !p.eof {
		if !p.park() {
			if !p.refuse.Load() {
				p.finish()
			}
			break
		}
		p.work()
	}
	p.calm()
}

// park waits until the pipe is readable or at its end, and reports false when
// the pump is to stop.
func (p *pump) park() bool {
	timer := time.NewTimer(idleClose)
	defer timer.Stop()
	p.in.arm()
	defer p.in.disarm()
	for {
		if p.stopped() {
			return false
		}
		select {
		case <-p.in.ready:
			return true
		case <-timer.C:
			p.calm()
		case <-p.quit:
			return false
		}
	}
}

// calm gives back what only a busy stream needs.
func (p *pump) calm() {
	p.s.wmu.Lock()
	p.s.rest()
	p.s.wmu.Unlock()
	p.s.log.index.idle()
	if p.grown && p.in.resize(pipeSmall) {
		p.grown = false
		p.grow.put()
	}
	p.buf = nil
}

// finish takes what is in the pipe and no more, so that a writer that goes on
// cannot keep the pump.
func (p *pump) finish() {
	left := p.in.waiting()
	for left > 0 && !p.eof {
		n, err := p.move(left)
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
