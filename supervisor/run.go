package supervisor

import (
	"os"
	"sync"
	"syscall"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/keeper"
	"procsup/supervisor/outcome"
	"procsup/supervisor/wire"
)

const (
	// linger, drainIdle and drainMax are as in `procsup run`.
	linger    = 50 * time.Millisecond
	drainIdle = 50 * time.Millisecond
	drainMax  = 2 * time.Second
)

// A phase is how far a run has come. It only moves forward.
type phase int

const (
	admitted phase = iota // in the journal; nothing was spawned
	running               // spawned
	observed              // the leader's end was seen
	ended                 // the end is in the journal
)

// A run is one command from admission to its end. Its goroutine, own, is the
// only one that acts on the processes; everybody else changes state under the
// supervisor's lock and wakes it.
type run struct {
	s    *Supervisor
	id   handles.ID
	spec wire.Start
	key  nameKey
	sess *session

	generation int   // of the supervisor that admitted it or took it up
	created    int64 // ms since 1970, for the order of lists

	log   *capture.Log
	group *pgroup.Group // nil before the spawn; set before own begins
	ready *readying     // nil: no conditions
	exits chan exitSeen // of an adopted command, from the keeper; nil: our own child

	kick   chan struct{} // a stop was decided
	hurry  chan struct{} // go to the next step
	late   chan struct{} // a stop came after the leader's end
	over   chan struct{} // closed when the end is durable
	marked chan struct{} // closed when the leader's end was marked by observe

	inMu  sync.Mutex
	stdin *os.File // our end of its stdin; nil: none, or closed

	evMu   sync.Mutex // makes the order of events
	events *handles.Ring[wire.Event]
	told   bool         // the first event is there; guarded by evMu
	early  []wire.Event // output that came before it; guarded by evMu

	atStart *wire.Started // the answer of the start; nil once it was given

	// Guarded by s.mu.
	durable      bool // its admission is
	rec          handles.Record
	phase        phase
	stop         *stop
	held         *keeper.Run // a start cut short, until the keeper knows more
	unverifiable bool        // its process can neither be seen nor ruled out
	seen         exitSeen
	seq          int64 // observed_seq: the number at which the leader's end was seen
	bell         chan struct{}
	place        bool      // it has a place in the inbox
	drop         bool      // its end is not delivered: its session was ended first
	claims       []*reader // who waits for its end and takes it, the first of them
	holders      int       // callers that wait for a foreground run
}

// exitSeen is how the leader ended and when that was seen.
type exitSeen struct {
	exit  platform.Exit
	usage platform.Usage
	at    time.Time
	lost  string // why the ending is unknown, "" = it is known
}

func newRun(s *Supervisor, id handles.ID, spec wire.Start, sess *session) *run {
	n := spec.Events
	if n == 0 {
		n = wire.EventRing
	}
	return &run{
		s: s, id: id, spec: spec, sess: sess, ready: newReadying(spec), events: handles.NewRing[wire.Event](n), generation: s.fence, created: time.Now().UnixMilli(), key: nameKey{spec.Session, spec.Name},
		kick: make(chan struct{}, 1), hurry: make(chan struct{}, 1), late: make(chan struct{}, 1), over: make(chan struct{}), marked: make(chan struct{}), bell: make(chan struct{}),
	}
}

// state is the whole state as seen from outside. It takes the lock.
func (r *run) state() (handles.Record, <-chan struct{}) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.snapshot(), r.bell
}

// snapshot is the record with what changes between rows. s.mu is held.
func (r *run) snapshot() handles.Record {
	rec := r.rec
	if rec.Status.Terminal() {
		return rec
	}
	if r.unverifiable {
		rec.Liveness = string(platform.Unverifiable)
		return rec
	}
	if rec.PID != 0 {
		rec.Liveness = string(platform.Live)
		if r.phase >= observed {
			rec.Liveness = string(platform.Exited)
		}
		rec.DurationMS = time.Since(rec.StartedAt).Milliseconds()
	}
	if r.log != nil {
		rec.Output = r.output(false)
	}
	return rec
}

// ring wakes everybody who waits for a change. s.mu is held.
func (r *run) ring() {
	close(r.bell)
	r.bell = make(chan struct{})
}

// own is the life of one command after its spawn, from top to bottom.
func (r *run) own() {
	defer r.s.owners.Done()
	if r.exits == nil {
		r.group.AfterEnd(r.observe) // own waits for its mark below
	} else {
		go r.observe() // ends with the leader
	}
	report, stopped := r.attend()
	select { // the ending is what observe saw, never a guess
	case <-r.marked:
	case <-r.s.life.Done():
	}
	r.s.hook("swept", r)
	complete := true
	if r.log != nil && r.s.life.Err() == nil {
		complete = r.log.Drain(r.s.life, drainIdle, drainMax)
	}
	if r.s.life.Err() != nil {
		if r.log != nil {
			r.log.Yield()
		}
		return // this process goes away; its successor takes the run up
	}
	r.endReady()
	r.settle(report, stopped, complete)
}

// observe marks the moment at which the leader's end was seen in the order of
// the journal: what is decided later cannot have caused it.
func (r *run) observe() {
	var seen exitSeen
	if r.exits == nil {
		seen.exit, seen.at = r.group.Exit()
		seen.usage, _ = r.group.Usage()
	} else {
		select {
		case seen = <-r.exits:
		case <-r.s.life.Done():
			return
		}
	}
	r.s.hook("observe", r)
	r.s.mu.Lock()
	r.seen, r.seq, r.phase = seen, r.s.next(), observed
	r.s.mu.Unlock()
	r.s.hook("observed", r)
	close(r.marked)
	wake(r.kick)
}

// attend waits for the leader's end or for a decision to stop it, sees to the
// tree, and says whether the stop came first.
func (r *run) attend() (rep pgroup.Report, stopped bool) {
	deadline := newAlarm(r.spec.DeadlineMS, r.rec.StartedAt)
	quiet := r.quietAlarm()
	for {
		select {
		case <-r.s.life.Done():
			return rep, false
		case <-deadline:
			r.s.decide(r, decision{kind: "deadline", cause: handles.CauseDeadline, by: "host", reason: "deadline of " + millis(r.spec.DeadlineMS).String()})
		case <-quiet:
			if left := r.quietFor(); left > 0 {
				quiet = time.After(left)
				continue
			}
			r.s.decide(r, decision{kind: "no_output", cause: handles.CauseNoOutput, by: "host", reason: "no output for " + millis(r.spec.NoOutputMS).String()})
		case <-r.kick:
			r.s.mu.Lock()
			stop, phase, seq := r.stop, r.phase, r.seq
			r.s.mu.Unlock()
			switch {
			case stop != nil && cameFirst(stop, phase, seq):
				<-stop.durable.Done() // nobody is signalled for a stop that could be forgotten
				r.s.hook("stopping", r)
				return r.group.Stop(stop.ladder, r.hurry), true
			case phase >= observed:
				return r.finish(r.group, linger, deadline, quiet), false
			}
		}
	}
}

// settle writes the end, and only then lets the number of the leader go.
func (r *run) settle(report pgroup.Report, stopped, complete bool) {
	s := r.s
	s.hook("settle", r)
	last := r.lastOutput()
	if r.log != nil {
		r.log.Stop() // until the end is durable, who succeeds the keeper must find what is still open
	}
	s.hook("sealed", r)
	s.mu.Lock()
	e := outcome.Ending{Started: r.rec.StartedAt, Ended: r.seen.at, Exit: r.seen.exit, Usage: r.seen.usage, Report: report}
	if stopped {
		e.Stop = r.stop.outcome()
	}
	if r.seen.lost != "" {
		r.rec.Status, r.rec.Error = handles.Lost, r.seen.lost
		r.rec.Liveness, r.rec.EndedAt = string(platform.Exited), r.seen.at.UTC()
		r.rec.DurationMS = r.seen.at.Sub(r.rec.StartedAt).Milliseconds()
		outcome.Cleanup(&r.rec, r.rec.StartedAt, report)
	} else {
		outcome.Settle(&r.rec, e)
	}
	if r.log != nil {
		r.rec.Output = r.output(complete)
	}
	r.neverReady(last)
	r.rec.Events = r.counted()
	commit := s.write(r, "ended", map[string]any{"observed_seq": r.seq})
	s.mu.Unlock()
	s.hook("written", r)
	if err := commit.Wait(); err != nil {
		s.log.Error("record end", "id", r.id, "err", err)
	}
	s.hook("ended", r)
	r.release()
	s.hook("settled", r)
	s.forget(r)
}

// release lets go of the leader's number and of what the keeper holds.
func (r *run) release() {
	if r.log != nil {
		r.log.Close()
	}
	if r.exits == nil {
		if _, err := r.group.Reap(); err != nil {
			r.s.log.Error("reap", "id", r.id, "err", err)
		}
	} else {
		r.group.Release()
		r.s.leaders.remove(r.rec.PID)
	}
	r.closeStdin()
	r.s.hook("reaped", r)
	if r.s.cfg.Keeper != nil {
		if err := r.s.cfg.Keeper.Settled(string(r.id)); err != nil {
			r.s.log.Error("settle with keeper", "id", r.id, "err", err)
		}
	}
}

// output describes what was captured. s.mu is held.
func (r *run) output(complete bool) *handles.Output {
	o := &handles.Output{Complete: complete, Stdout: outcome.Stream(r.log, capture.Stdout, r.log.Path(capture.Stdout))}
	if !r.spec.Merge {
		o.Stderr = outcome.Stream(r.log, capture.Stderr, r.log.Path(capture.Stderr))
	}
	return o
}

// keepStdin notes our end of its stdin, which may be written to from then on.
func (r *run) keepStdin(f *os.File) {
	r.inMu.Lock()
	defer r.inMu.Unlock()
	r.stdin = f
}

func (r *run) closeStdin() {
	r.inMu.Lock()
	defer r.inMu.Unlock()
	if r.stdin != nil {
		r.stdin.Close()
		r.stdin = nil
	}
}

// forget drops a run from memory after its end is durable; it is read from the
// journal from now on.
func (s *Supervisor) forget(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.phase = ended
	if r.spec.Idempotency != "" && s.keys[r.spec.Idempotency] == r {
		delete(s.keys, r.spec.Idempotency)
		s.keyEnds++
	}
	s.leave(r)
	r.ring()
	close(r.over)
	r.event(wire.Event{Kind: wire.EventEnded, Status: r.rec.Status})
	r.events.Close()
}

// unname frees the name for another run. s.mu is held.
func (s *Supervisor) unname(r *run) {
	if r.spec.Name != "" && s.names[r.key] == r {
		delete(s.names, r.key)
	}
}

// write appends an entry with the record as it is now. s.mu is held, which
// makes the order. The answer is to be waited for without it.
func (s *Supervisor) write(r *run, kind string, more map[string]any) *journal.Commit {
	if kind == "ended" && r.drop && awaited(&r.rec) {
		r.rec.Delivery = handles.DeliveryDropped
	}
	r.rec.Revision++
	r.rec.Seq = s.next()
	return s.journal.Submit(batch(r, kind, more))
}

// writeRecord is write of a run that has ended.
func (s *Supervisor) writeRecord(rec *handles.Record, kind string, more map[string]any) *journal.Commit {
	rec.Revision++
	rec.Seq = s.next()
	return s.journal.Submit(recordBatch(rec, kind, more))
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is pending
	}
}

// newAlarm fires once, ms after a moment; never for 0.
func newAlarm(ms int64, from time.Time) <-chan time.Time {
	if ms <= 0 {
		return nil
	}
	return time.After(time.Until(from.Add(millis(ms))))
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func leftover(spec wire.Start) pgroup.Leftover {
	l, _ := pgroup.ParseLeftover(spec.Leftover) // checked at admission
	return l
}

// ladder is how this run is stopped unless a request says otherwise.
func ladder(spec wire.Start) pgroup.Ladder {
	l := pgroup.Ladder{Signal: syscall.SIGTERM, Grace: 2 * time.Second}
	if spec.Lease == LeaseService {
		l.Grace = 10 * time.Second
	}
	if spec.GraceMS != nil {
		l.Grace = millis(*spec.GraceMS)
		if l.Grace == 0 {
			l.Grace = -1 // none at all
		}
	}
	if spec.StopSignal != "" {
		l.Signal, _ = platform.ParseSignal(spec.StopSignal) // checked at admission
	}
	return l
}
