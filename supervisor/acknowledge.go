package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
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
		return a, s.wasBatch(sess.rec.Name, req.Batch)
	}
	return a, nil
}

// repeatable is among how many newest entries a batch is looked for that went
// back into the inbox: who acknowledges again does so soon.
const repeatable = 100_000

// wasBatch refuses a batch that was never acknowledged. Who asks again does so
// soon, so the newest are looked through first.
func (s *Supervisor) wasBatch(name, batch string) error {
	const recent = 1000
	found, n := false, 0
	err := s.eachDelivered(func(_ journal.Entry, in inBatch) (bool, error) {
		if n++; n == recent {
			var err error
			if found, err = s.wentBack(name, batch); found || err != nil {
				return false, err
			}
		}
		found = in.Session == name && in.Batch == batch
		return !found, nil
	})
	if err == nil && !found && n < recent {
		found, err = s.wentBack(name, batch)
	}
	if found || err != nil {
		return err
	}
	return &handles.Error{Code: handles.CodeNotFound, ID: batch, Message: fmt.Sprintf("session %s has no batch %.80q", name, batch), Hint: "procsup pending --items and procsup deliveries show them"}
}

// wentBack reports whether all of a batch went back into the inbox.
func (s *Supervisor) wentBack(name, batch string) (bool, error) {
	back, err := s.journal.Returned(repeatable)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(back, func(e journal.Entry) bool {
		var in inBatch
		return json.Unmarshal(e.Body, &in) == nil && in == inBatch{batch, name}
	}), nil
}

// inBatch is what the entry of an acknowledged end says of its batch.
type inBatch struct{ Batch, Session string }

// eachDelivered calls f with the ends that were acknowledged, newest first, until
// it has had enough. It holds but a few of them at a time.
func (s *Supervisor) eachDelivered(f func(e journal.Entry, in inBatch) (more bool, _ error)) error {
	const part = 256
	for before := int64(math.MaxInt64); ; {
		es, err := s.journal.Delivered(before, part)
		if err != nil {
			return err
		}
		for _, e := range es {
			var in inBatch
			if json.Unmarshal(e.Body, &in) != nil {
				continue
			}
			if more, err := f(e, in); err != nil || !more {
				return err
			}
		}
		if len(es) < part {
			return nil
		}
		before = es[len(es)-1].Seq
	}
}

// Deliveries are the batches of a session that were acknowledged, newest first.
func (s *Supervisor) Deliveries(_ context.Context, name string, limit int) (*wire.Deliveries, error) {
	s.mu.Lock()
	sess, err := s.known(name)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	out := &wire.Deliveries{Deliveries: []wire.Delivery{}}
	err = s.eachDelivered(func(e journal.Entry, in inBatch) (bool, error) {
		if in.Session != sess.rec.Name {
			return true, nil
		}
		n := len(out.Deliveries)
		if n == 0 || out.Deliveries[n-1].Batch != in.Batch {
			if limit > 0 && n == limit {
				return false, nil
			}
			out.Deliveries = append(out.Deliveries, wire.Delivery{Batch: in.Batch, At: e.At.UTC()})
			n++
		}
		d := &out.Deliveries[n-1]
		d.Handles = append(d.Handles, handles.ID(e.Run))
		return true, nil
	})
	if err != nil {
		return nil, err
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
