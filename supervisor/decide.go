package supervisor

import (
	"time"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/supervisor/journal"
	"procsup/supervisor/outcome"
	"procsup/supervisor/wire"
)

// A decision is a wish to stop a run.
type decision struct {
	kind   string // cancel, deadline, no_output, session_close, evict, start_abort, shutdown
	cause  handles.Cause
	by     string // user, host
	reason string
	key    string        // of the request, so that a repeat of it knows its stop; "" = none
	ladder pgroup.Ladder // zero: the run's own

	edit    func(*handles.Record) // what it changes in the record besides; nil: nothing
	unready bool                  // only of a run that was never ready
}

// A stop is a decision that cut a run short.
type stop struct {
	decision
	id      string
	seq     int64
	at      time.Time
	durable *journal.Commit
}

func (st *stop) outcome() *outcome.Stop {
	return &outcome.Stop{ID: st.id, Cause: st.cause, By: st.by, Reason: st.reason, Seq: st.seq}
}

// workInFlight is the one answer to "would a stop cut something short?", for
// cancel, close, evict, deadline and shutdown alike. It reads the journal's
// state only, under the lock, and waits for nothing: work counts from its
// admission on and no longer once its end was seen. The fence is the generation
// that asks: what an earlier one admitted and nobody took up is not in flight.
func workInFlight(p phase, generation, fence int) bool {
	return p < observed && generation >= fence
}

// holds reports whether an earlier stop keeps the ending to itself: a person's
// stop holds over every later one by the host, and no second stop cuts what
// the first has cut already, except that a person's close is always written.
func holds(earlier *stop, d decision) bool {
	return earlier != nil && !(d.by == "user" && d.kind == "session_close" && earlier.kind != d.kind)
}

// cameFirst reports whether a stop was decided before the leader's end was
// seen. The numbers of the journal tell; a clock may be set back.
func cameFirst(st *stop, p phase, observedSeq int64) bool {
	return p < observed || st.seq < observedSeq
}

// decide stops a run, or does nothing and writes nothing if there is nothing to
// stop. It answers at once; the stop is durable when the commit is, and the
// run's owner signals nobody before that.
func (s *Supervisor) decide(r *run, d decision) (*stop, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := d.cause == handles.CauseOwnerGone && !r.front() || d.unready && !r.rec.Readiness.FirstAt.IsZero()
	if !workInFlight(r.phase, r.generation, s.fence) {
		if r.phase == observed && !idle {
			wake(r.late)
		}
		return r.stop, false
	}
	if idle || holds(r.stop, d) {
		return r.stop, false
	}
	if d.ladder == (pgroup.Ladder{}) {
		d.ladder = ladder(r.spec)
	}
	st := &stop{decision: d, at: time.Now()}
	first := r.stop == nil
	r.rec.Status = handles.Stopping
	st.seq = s.seq + 1 // write gives it
	st.id = stopID(r.id, st.seq)
	if first {
		r.stop, r.rec.Cause = st, d.cause
		r.rec.Stop = &handles.Stop{ID: st.id, By: d.by, Reason: d.reason, Seq: st.seq}
	}
	if d.edit != nil {
		d.edit(&r.rec)
	}
	row := map[string]any{"id": st.id, "kind": d.kind, "by": d.by, "cuts": r.id, "reason": d.reason, "cause": d.cause}
	if d.key != "" {
		row["key"] = d.key
	}
	st.durable = s.write(r, "stop", map[string]any{"stop": row})
	r.ring()
	r.event(wire.Event{Kind: wire.EventStopping, Status: handles.Stopping})
	wake(r.kick)
	return st, true
}
