package keeper

import (
	"encoding/json"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// closedGrace is how long a supervisor that closed its socket may take to end.
const closedGrace = 2 * time.Second

// socket takes what the supervisor says and sends what waits for room.
func (k *keeper) socket(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		k.flush()
	}
	if events&^uint32(unix.EPOLLOUT) != 0 {
		k.receive()
	}
}

// receive handles all messages that have come.
func (k *keeper) receive() {
	s := k.sup
	for s.sock >= 0 {
		m, fds, err := k.recv.packet(s.sock)
		if err == unix.EAGAIN {
			return
		}
		if err != nil { // nobody holds the other end: it is ending, or is of no use
			k.poll.remove(s.sock)
			_ = unix.Close(s.sock)
			s.sock, s.killAt = -1, time.Now().Add(closedGrace)
			return
		}
		if m.Kind == "" {
			k.log.Error("unreadable message from the supervisor", "err", m.Error)
		}
		k.handle(s, m, fds)
	}
}

func (k *keeper) handle(s *supervisor, m message, fds []int) {
	if m.Kind == kindRegister {
		k.register(m, fds)
		return
	}
	closeAll(fds)
	switch m.Kind {
	case kindHello:
		s.hello = true
		s.program, _ = platform.ProgramOf(s.pid)
		s.todo, s.pidfds = k.inOrder(), m.Pidfds
		k.bequeath()
		k.beginHandOver()
	case kindStopping:
		k.stage(Stopping)
	case kindDemand:
		s.demands = true
	case kindAck:
		if m.Seq == s.page && len(s.sent) > 0 {
			k.acknowledged(m)
		}
	case kindSpawned:
		k.spawned(m)
	case kindTrim:
		if r := k.runs[m.ID]; r != nil && m.Pipes < len(r.pipes) {
			closeAll(r.pipes[m.Pipes:])
			r.pipes = r.pipes[:m.Pipes]
		}
	case kindWithdraw, kindSettled:
		k.forget(m.ID)
	case kindReady:
		k.becameReady(s)
	case kindReplace:
		s.replacing = true
		k.stage(Replacing)
		if len(m.Exe) > 0 {
			k.exe = string(m.Exe)
		}
	case kindMarks:
		s.marks = true
	case kindDone:
		s.done = true
	case kindRefuse:
		s.refused = &refusal{m.Code, m.Error}
	}
}

func (k *keeper) becameReady(s *supervisor) {
	s.ready = true
	if s.exe != ownImage || k.goodExe == "" { // the path is tried again when this one dies
		k.goodExe = s.exe
	}
	if !k.told && k.cfg.Ready != nil {
		k.cfg.Ready()
	}
	k.told = true
	k.upgraded = ""
	k.stage(Serving)
}

// bequeath tells the supervisor what it needs to go on as keeper should we die.
func (k *keeper) bequeath() {
	w := &willBody{Exe: []byte(k.exe), GoodExe: []byte(k.goodExe), Told: k.told, StopAtNS: unixNano(k.stopBy), Carry: k.cfg.Carry}
	var fds []int
	if k.lock >= 0 {
		w.Lock, fds = true, []int{k.lock}
	}
	k.send(message{Kind: kindWill, Will: w}, fds)
}

// pendingWait is how long a hand-over waits for children of the dead
// supervisor that have not executed their program.
const pendingWait = 100 * time.Millisecond

// beginHandOver hands over at once, or in a moment when it is still being
// found out which runs were spawned.
func (k *keeper) beginHandOver() {
	if len(k.rest) == 0 {
		k.handOver()
		return
	}
	k.sup.waitTill = time.Now().Add(pendingWait)
}

// handOver sends the next page, or the end.
func (k *keeper) handOver() {
	s := k.sup
	s.waitTill = time.Time{}
	if s.open || len(s.sent) > 0 || !s.hello {
		return
	}
	if len(s.todo) == 0 {
		k.send(message{Kind: kindEnd}, nil)
		k.opened(s)
		return
	}
	bodies := make([]runBody, 0, maxRuns)
	for _, r := range s.todo[:min(len(s.todo), maxRuns)] {
		b := r.body()
		b.Pidfd = s.pidfds && r.stranger && !r.pending && r.pidfd >= 0
		bodies = append(bodies, b)
	}
	n := page(bodies, func(b runBody) int {
		j, _ := json.Marshal(b)
		return len(j)
	})
	var fds []int
	for i, r := range s.todo[:n] {
		fds = append(fds, r.pipes...)
		if bodies[i].Pidfd {
			fds = append(fds, r.pidfd)
		}
		r.told = r.exit != nil && !r.pending
	}
	s.sent, s.sentFDs, s.todo = s.todo[:n], len(fds), s.todo[n:]
	s.page++
	k.send(message{Kind: kindRuns, Seq: s.page, Runs: bodies[:n]}, fds)
}

// acknowledged goes on when the supervisor got every descriptor; otherwise it
// fails to connect, says so itself and ends.
func (k *keeper) acknowledged(m message) {
	s := k.sup
	if m.Count != s.sentFDs {
		k.log.Error("the supervisor has too few descriptors for the hand-over (RLIMIT_NOFILE)", "got", m.Count, "sent", s.sentFDs)
		return
	}
	s.sent = nil
	k.handOver()
}

// opened tells what happened while pages were on their way.
func (k *keeper) opened(s *supervisor) {
	s.open, s.todo = true, nil
	for _, r := range k.inOrder() {
		k.tell(r)
	}
	if !k.stopBy.IsZero() {
		k.send(k.stopRequest(), nil)
	}
	if len(k.runs) > maxRuns {
		debug.FreeOSMemory() // what the pages took
	}
}

// ask sends a request now, or drops it when the supervisor is not listening
// yet: opened repeats what still counts.
func (k *keeper) ask(m message) {
	if k.sup != nil && k.sup.open {
		k.send(m, nil)
	}
}

// send sends a message, or keeps it until there is room for it. A supervisor
// that is gone gets none: whatever it was is in the next hand-over.
func (k *keeper) send(m message, fds []int) {
	s := k.sup
	b, err := encode(m)
	if err != nil {
		k.log.Error("message to the supervisor", "err", err)
		return
	}
	s.out = append(s.out, packet{b, fds})
	if len(s.out) == 1 {
		k.flush()
	}
}

func (k *keeper) flush() {
	s := k.sup
	s.sendAt = time.Time{}
	for len(s.out) > 0 && s.sock >= 0 {
		err := sendPacket(s.sock, s.out[0].b, s.out[0].fds)
		if err == unix.ETOOMANYREFS { // too many of this user's descriptors are on their way: nothing tells when that is over
			s.sendAt = time.Now().Add(10 * time.Millisecond)
			return
		}
		if err == unix.EAGAIN {
			_ = k.poll.control(unix.EPOLL_CTL_MOD, s.sock, unix.EPOLLIN|unix.EPOLLOUT, tag{aboutSocket, int32(s.gen)})
			return
		}
		if err != nil && err != errClosed {
			k.log.Error("send to the supervisor", "err", err)
		}
		s.out[0] = packet{}
		s.out = s.out[1:]
	}
	s.out = nil
	if s.sock >= 0 {
		_ = k.poll.control(unix.EPOLL_CTL_MOD, s.sock, unix.EPOLLIN, tag{aboutSocket, int32(s.gen)})
	}
}
