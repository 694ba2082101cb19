package supervisor

import "procsup/handles"

// Hooks let a test stop the supervisor between two steps of a start or of an
// end. The points are admitted, registered, spawned, observe and settle; of
// readiness ready and not_ready, durable and not told yet, and heard, a datagram
// that is durable and still in its queue.
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
