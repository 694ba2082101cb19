package supervisor

import "procsup/handles"

// Hooks let a test stop or kill the supervisor between two steps of a start, of
// a stop or of an end. The points, in order:
//
//	submitted    the admission is with the journal's writer
//	admitted     it is durable
//	piped        spools and pipes are there
//	registered   the keeper has them
//	prepared     capture reads them
//	spawned      the command runs
//	told         the keeper knows its number
//	recorded     the spawned row is durable; the answer comes next
//
//	stopping     the stop row is durable; no signal was sent
//
//	observe      the leader has ended
//	observed     that has its number in the order
//	swept        the tree is ended, by a stop or after the leader's own end
//	settle       the pipes are drained
//	sealed       nothing more is taken from them; those not at their end stay open
//	written      the end is with the journal's writer
//	ended        the ended row is durable
//	reaped       the leader's number is free
//	settled      the keeper holds nothing of it any more
//
// Of readiness: ready and not_ready, durable and not told yet, and heard, a
// datagram that is durable and still in its queue.
type Hooks struct {
	At func(point string, id handles.ID)
	// Retained is called after each look for what is too old.
	Retained func()
}

func (s *Supervisor) hook(point string, r *run) {
	if s.cfg.Hooks != nil && s.cfg.Hooks.At != nil {
		s.cfg.Hooks.At(point, r.id)
	}
}
