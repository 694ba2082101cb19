package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// Acknowledge settles a batch: its ends are delivered, or back in the inbox. It
// may be repeated; a batch that is not known is an error.
func (s *Supervisor) Acknowledge(ctx context.Context, name string, req wire.Acknowledge) (*wire.Acknowledged, error) {
	kind := "delivered"
	switch req.Outcome {
	case "", "delivered":
	case "returned":
		kind = "returned"
	default:
		return nil, invalid("outcome", "%q is neither delivered nor returned", req.Outcome)
	}
	if req.Batch == "" {
		return nil, invalid("batch", "is empty")
	}
	s.mu.Lock()
	sess, err := s.known(name)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	var commits []*journal.Commit
	for id, o := range sess.owed {
		if o.rec.Batch != req.Batch {
			continue
		}
		if kind == "delivered" {
			o.rec.Delivery = handles.DeliveryDelivered
			s.settled(sess, id)
		} else {
			o.rec.Batch, o.reader = "", nil
		}
		commits = append(commits, s.writeRecord(&o.rec, kind, map[string]any{"batch": req.Batch, "session": sess.rec.Name}))
	}
	a := &wire.Acknowledged{Batch: req.Batch, Count: len(commits), Pending: len(sess.owed)}
	if len(commits) > 0 {
		sess.settling = commits
		s.announce(sess)
		sess.changed()
	} else { // another call may be settling it
		commits = sess.settling
	}
	s.mu.Unlock()
	if err := committed(commits, "record the acknowledgement"); err != nil {
		return nil, err
	}
	if a.Count == 0 {
		return a, s.wasBatch(ctx, sess.rec.Name, req.Batch)
	}
	return a, nil
}

// repeatable is among how many newest entries a batch is looked for that went
// back into the inbox: who acknowledges again does so soon.
const repeatable = 100_000

// wasBatch refuses a batch that was never acknowledged.
func (s *Supervisor) wasBatch(ctx context.Context, name, batch string) error {
	d, err := s.Deliveries(ctx, name, 0)
	if err != nil {
		return err
	}
	for _, x := range d.Deliveries {
		if x.Batch == batch {
			return nil
		}
	}
	back, err := s.journal.Returned(repeatable)
	if err != nil {
		return err
	}
	for _, e := range back {
		var b struct{ Batch, Session string }
		if json.Unmarshal(e.Body, &b) == nil && b.Batch == batch && b.Session == name {
			return nil
		}
	}
	return &handles.Error{Code: handles.CodeNotFound, ID: batch, Message: fmt.Sprintf("session %s has no batch %.80q", name, batch), Hint: "procsup pending --items and procsup deliveries show them"}
}

// Deliveries are the batches of a session that were acknowledged, newest first.
func (s *Supervisor) Deliveries(_ context.Context, name string, limit int) (*wire.Deliveries, error) {
	s.mu.Lock()
	sess, err := s.known(name)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	es, err := s.journal.Delivered(0)
	if err != nil {
		return nil, err
	}
	out := &wire.Deliveries{Deliveries: []wire.Delivery{}}
	for _, e := range es {
		var b struct{ Batch, Session string }
		if err := json.Unmarshal(e.Body, &b); err != nil || b.Session != sess.rec.Name {
			continue
		}
		n := len(out.Deliveries)
		if n == 0 || out.Deliveries[n-1].Batch != b.Batch {
			if limit > 0 && n == limit {
				break
			}
			out.Deliveries = append(out.Deliveries, wire.Delivery{Batch: b.Batch, At: e.At.UTC()})
			n++
		}
		d := &out.Deliveries[n-1]
		d.Handles = append(d.Handles, handles.ID(e.Run))
	}
	for i := range out.Deliveries {
		slices.Sort(out.Deliveries[i].Handles)
	}
	return out, nil
}

// dropOwed ends the delivery of everything that is owed. s.mu is held.
func (s *Supervisor) dropOwed(sess *session) (ids []handles.ID, commits []*journal.Commit) {
	for id, o := range sess.owed {
		o.rec.Delivery = handles.DeliveryDropped
		commits = append(commits, s.writeRecord(&o.rec, "dropped", map[string]any{"session": sess.rec.Name}))
		s.settled(sess, id)
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, commits
}
