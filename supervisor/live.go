package supervisor

import (
	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// join counts a live run. s.mu is held.
func (s *Supervisor) join(r *run) {
	s.runs[r.id] = r
	s.extra += r.ready.extra()
	r.sess.live[r.id] = r
	if needsPlace(r.spec) {
		r.sess.places++
		r.place = true
	}
	if r.front() {
		r.sess.parent = r
	}
	s.reserve()
}

// leave is the other end of join; what is owed then goes into the inbox.
// s.mu is held.
func (s *Supervisor) leave(r *run) {
	if s.runs[r.id] == r {
		s.extra -= r.ready.extra()
	}
	delete(s.runs, r.id)
	s.unname(r)
	sess := r.sess
	delete(sess.live, r.id)
	if r.place {
		sess.places--
	}
	if sess.parent == r {
		sess.parent, sess.armed = nil, true
	}
	if r.rec.Status.Terminal() {
		s.notifyRun(sess, wire.NoticeFinished, &r.rec)
		if awaited(&r.rec) {
			s.owe(r)
		}
	}
	s.reserve()
	s.announce(sess)
	if sess.closed() && len(sess.live) == 0 {
		s.hush(sess)
	}
	sess.changed()
}

// reserve keeps room in the journal for ends, and for what becomes of those
// that are owed. s.mu is held.
func (s *Supervisor) reserve() {
	s.journal.SetReserve(int64(len(s.runs)+s.owed) * journal.ReservePerRun)
}

// counted are the events of a run once its last one is told. s.mu is held.
func (r *run) counted() *handles.Events {
	total, dropped := r.events.Reserve()
	return &handles.Events{Total: total, Dropped: dropped}
}
