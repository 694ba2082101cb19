package supervisor

import (
	"context"
	"slices"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/ready"
)

// said is a datagram that came on a run's notify socket, judged.
type said struct {
	ready.Message
	foreign, malformed, tooLong bool
	files                       int
}

// listen hands the datagrams of the notify socket to the owner. One is taken out
// of the socket's queue only after what it says is durable: if this process dies
// before, the next supervisor finds it there. That closes a barrier's descriptor
// after all earlier messages were handled, as BARRIER asks.
func (w *readyWatch) listen(ctx context.Context) {
	sock := w.q.notify
	defer context.AfterFunc(ctx, func() { _ = sock.SetReadDeadline(time.Unix(1, 0)) })()
	var pace pace
	for {
		d, err := platform.PeekDatagram(sock)
		if err != nil {
			if ctx.Err() == nil {
				w.r.s.log.Error("notify socket", "id", w.r.id, "err", err)
			}
			return
		}
		m := w.judge(d)
		d.Close()
		if m.urgent() && !pace.step(ctx) || !w.tell(ctx, hearing{data: m}) {
			return
		}
		w.r.s.hook("heard", w.r)
		if err := platform.DropDatagram(sock); err != nil {
			w.r.s.log.Error("notify socket", "id", w.r.id, "err", err)
			return
		}
	}
}

// listenLast hands over what is in the queue when the run is over, at most what
// one may write to the journal in a second: who said it may have ended at once.
func (w *readyWatch) listenLast() {
	sock := w.q.notify
	for range paceMost {
		d, err := platform.PeekPending(sock)
		if d == nil || err != nil {
			return
		}
		m := w.judge(d)
		d.Close()
		w.hear(m)
		if platform.DropDatagram(sock) != nil {
			return
		}
	}
}

// judge says whether a datagram counts: it has to come from the run's tree, as
// the kernel says, whatever user the sender is. A process that has ended counts
// as long as the kernel tells where it was.
func (w *readyWatch) judge(d *platform.Datagram) *said {
	g := w.r.group
	m := &said{tooLong: d.TooLong}
	ours := d.Sender.PID > 0 && g.Holds(d.Sender.PID)
	if !ours {
		id, known := d.CgroupID()
		ours = known && g.HoldsCgroup(id)
	}
	var err error
	switch {
	case !ours:
		m.foreign = true
	case d.TooLong:
	default:
		m.Message, err = ready.ParseMessage(d.Data)
		m.malformed = err != nil
		if m.MainPID != 0 && !g.Holds(m.MainPID) {
			m.MainPID = 0
		}
		if !m.Barrier {
			m.files = d.Files()
		}
	}
	return m
}

// urgent reports whether what it says is journaled at once.
func (m *said) urgent() bool {
	return m.Ready || m.Reloading || m.Stopping || m.Extend != 0 || m.Watchdog != 0
}

// hear does what a datagram says.
func (w *readyWatch) hear(m *said) {
	change := func(v *handles.Readiness) { w.heed(m, v) }
	if m.urgent() {
		w.change(func(v *handles.Readiness) string {
			change(v)
			return "said"
		})
	} else {
		w.note(change)
	}
	switch {
	case m.Trigger:
		w.bite("it asked for that by WATCHDOG=trigger")
	case m.Alive || m.Watchdog != 0:
		w.pat()
	}
}

// note changes what is known now and journals it soon, so that a command that
// talks all the time does not fill the journal.
func (w *readyWatch) note(f func(*handles.Readiness)) {
	s := w.r.s
	s.mu.Lock()
	v := w.r.rec.Readiness.Clone()
	f(v)
	same := slices.Equal(v.Conditions, w.r.rec.Readiness.Conditions) && v.Status == w.r.rec.Readiness.Status && v.MainPID == w.r.rec.Readiness.MainPID &&
		v.Refused == w.r.rec.Readiness.Refused && v.Ignored == w.r.rec.Readiness.Ignored
	if !same {
		w.r.rec.Readiness = v
	}
	s.mu.Unlock()
	if !same {
		w.flush.Reset(max(0, sayTime-time.Since(w.wrote)))
	}
}

// heed changes the readiness by what a datagram says. s.mu is held.
func (w *readyWatch) heed(m *said, v *handles.Readiness) {
	for _, c := range []struct {
		is bool
		n  *int64
	}{{m.foreign, &v.Ignored.Foreign}, {m.malformed, &v.Ignored.Malformed}, {m.tooLong && !m.foreign, &v.Ignored.TooLong}} {
		if c.is {
			*c.n++
		}
	}
	v.Refused += int64(m.files)
	if m.Status != nil {
		v.Status = *m.Status
	}
	if m.MainPID != 0 {
		v.MainPID = m.MainPID
	}
	if m.Watchdog != 0 {
		w.every = max(m.Watchdog, 0)
		v.WatchdogMS = w.every.Milliseconds()
	}
	if m.Extend != 0 && v.State == handles.ReadyWaiting && !v.Until.IsZero() {
		if until := time.Now().Add(m.Extend).UTC(); until.After(v.Until) {
			v.Until = until
			w.limit.Reset(m.Extend)
		}
	}
	if m.Reloading && v.State == handles.ReadyNow {
		v.State = handles.ReadyReloading
	}
	if m.Ready {
		w.saidReady(v)
	}
	if m.Stopping && !v.FirstAt.IsZero() {
		v.State = handles.ReadyStopping
	}
}

// saidReady is READY=1: the condition holds, or the run is ready again.
func (w *readyWatch) saidReady(v *handles.Readiness) {
	for i, c := range w.q.conds {
		if c.Kind == ready.Notify && v.Conditions[i].HeldAt.IsZero() {
			v.Conditions[i].HeldAt = time.Now().UTC()
		}
	}
	if v.State != handles.ReadyAborted && allHeld(v) && w.r.stop == nil {
		v.State = handles.ReadyNow
	}
}

// pat puts the watchdog off, or sets it.
func (w *readyWatch) pat() {
	if w.every > 0 {
		w.dog.Reset(w.every)
	} else {
		w.dog.Stop()
	}
}

// bite ends the run for its watchdog. Its cause is deadline: it had to say
// something by then.
func (w *readyWatch) bite(why string) {
	w.every = 0
	w.r.s.decide(w.r, decision{kind: "watchdog", cause: handles.CauseDeadline, by: "host", reason: "watchdog: " + why})
}
