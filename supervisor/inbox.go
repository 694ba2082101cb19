package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// An owed is the end of a run that its session has not acknowledged.
type owed struct {
	rec    handles.Record
	reader *reader // who took it; nil: it waits
	told   bool    // a reader was given it
	again  bool    // and is given it once more

	taken *journal.Commit // that it was taken; nil: long ago
}

// give marks it as given to a reader.
func (o *owed) give() { o.again, o.told = o.told, true }

// A reader is who took a batch: a process, and one of its clients. Only it gets
// the batch again while it lives.
type reader struct {
	Process handles.Exec `json:"process"`
	Client  string       `json:"client,omitempty"`
}

func readerOf(who Caller) *reader {
	p := who.Process
	return &reader{Process: handles.Exec{BootID: p.BootID, PID: p.PID, StartTicks: p.StartTicks}, Client: who.Reader}
}

// free reports whether somebody else may have what it took: its process is gone,
// or was never known.
func (r *reader) free() bool {
	return r == nil || r.Process.PID == 0 || identity(&r.Process).Liveness() != platform.Live
}

// awaited reports whether the end of a run is owed to its session.
func awaited(rec *handles.Record) bool { return rec.Delivery == handles.DeliveryPending }

// place refuses an awaited run when the inbox may get no more. s.mu is held.
func (sess *session) place() error {
	if n := sess.places + len(sess.owed); n >= wire.InboxSize {
		return &handles.Error{
			Code: handles.CodeInboxFull, ID: sess.rec.Name,
			Message: fmt.Sprintf("the inbox of session %s has no place left: %d ends are owed, %d will be", sess.rec.Name, len(sess.owed), sess.places),
			Hint:    "take some with procsup continue, or start with --lease service",
		}
	}
	return nil
}

// owe puts an end that is durable into the inbox. s.mu is held.
func (s *Supervisor) owe(r *run) {
	o := &owed{rec: r.rec}
	r.sess.owed[r.id] = o
	s.owed++
	if len(r.claims) > 0 { // somebody has waited for it: nobody else gets it while they live
		s.take(r.sess, o, handles.NewBatchID(), r.claims[0])
	}
}

// claim makes a caller the one who takes the end of a live run; release takes
// that back.
func (s *Supervisor) claim(r *run, who Caller) (release func()) {
	if r == nil {
		return func() {}
	}
	me := readerOf(who)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.claims = append(r.claims, me)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.claims = slices.DeleteFunc(r.claims, func(c *reader) bool { return c == me })
	}
}

// settled takes an end out of the inbox. s.mu is held.
func (s *Supervisor) settled(sess *session, id handles.ID) {
	delete(sess.owed, id)
	s.owed--
	s.reserve()
}

// recoverOwed fills the inboxes. s.mu is held.
func (s *Supervisor) recoverOwed() error {
	rows, err := s.journal.Owed()
	if err != nil {
		return fmt.Errorf("recover inboxes: %w", err)
	}
	for _, row := range rows {
		rec, err := decode(row)
		if err != nil {
			return err
		}
		o := &owed{rec: *rec}
		if o.reader, o.told, err = s.lastReader(row.ID); err != nil {
			return err
		}
		if rec.Batch == "" { // it was returned, or never taken
			o.reader = nil
		}
		s.watchReader(s.session(row.Session), o.reader)
		s.session(row.Session).owed[rec.HandleID] = o
		s.owed++
	}
	return nil
}

// lastReader is who took the end of a run last, as the journal tells, and
// whether anybody has.
func (s *Supervisor) lastReader(id string) (*reader, bool, error) {
	es, err := s.journal.Entries(0, id, 0)
	if err != nil {
		return nil, false, fmt.Errorf("recover inboxes: %w", err)
	}
	for _, e := range slices.Backward(es) {
		if e.Kind != "taken" {
			continue
		}
		var b struct {
			Reader *reader `json:"reader"`
		}
		if err := json.Unmarshal(e.Body, &b); err != nil {
			return nil, false, fmt.Errorf("read who took %s: %w", id, err)
		}
		return b.Reader, true, nil
	}
	return nil, false, nil
}

// Pending counts what is owed, and lists it if asked.
func (s *Supervisor) Pending(_ context.Context, name string, items bool) (*wire.Pending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess, err := s.known(name)
	if err != nil {
		return nil, err
	}
	p := &wire.Pending{Count: len(sess.owed)}
	if items {
		p.Items = completions(sess.owed, func(*owed) bool { return true })
	}
	return p, nil
}

// completions are those of what is owed that match, by id.
func completions(all map[handles.ID]*owed, match func(*owed) bool) []wire.Completion {
	list := []wire.Completion{}
	for _, o := range all {
		if match(o) {
			list = append(list, completion(o))
		}
	}
	slices.SortFunc(list, func(a, b wire.Completion) int { return strings.Compare(string(a.HandleID), string(b.HandleID)) })
	return list
}

func completion(o *owed) wire.Completion {
	rec := o.rec
	return wire.Completion{
		Kind: "tool_result", HandleID: rec.HandleID, Status: rec.Status, Operation: kindOf(&rec), Descriptor: rec.Descriptor,
		StartedAt: rec.StartedAt, EndedAt: rec.EndedAt, DurationMS: rec.DurationMS, Error: rec.Error,
		Batch: rec.Batch, Redelivered: o.again, Result: &rec,
	}
}

// Take gives what is owed as one batch, which is durable when it is answered.
// It waits for something to be owed if asked.
func (s *Supervisor) Take(ctx context.Context, name string, req wire.Take, who Caller) (*wire.Batch, error) {
	if req.Max < 0 {
		return nil, invalid("max", "%d is negative", req.Max)
	}
	if req.WaitMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = bounded(ctx, millis(req.WaitMS))
		defer cancel()
	}
	for {
		s.mu.Lock()
		sess, err := s.known(name)
		if err != nil {
			s.mu.Unlock()
			return nil, err
		}
		b, commits := s.takeNow(sess, req.Max, who)
		bell, closed := sess.bell, sess.closed()
		s.mu.Unlock()
		if b.Count > 0 || req.WaitMS == 0 || closed {
			return b, committed(commits, "record what was taken")
		}
		select {
		case <-bell:
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errTimeout) {
				return nil, cause
			}
			return b, nil
		case <-s.life.Done():
			return nil, handles.ErrStarting
		}
	}
}

func committed(commits []*journal.Commit, what string) error {
	for _, c := range commits {
		if err := c.Wait(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// takeNow chooses a batch: what this reader has taken and not acknowledged, else
// a whole batch of a reader that is gone, else what waits. s.mu is held.
func (s *Supervisor) takeNow(sess *session, most int, who Caller) (*wire.Batch, []*journal.Commit) {
	me := readerOf(who)
	b := &wire.Batch{Event: wire.NothingKey, Session: sess.rec.Name, Completions: []wire.Completion{}}
	var fresh []*owed
	id, mine := "", false
	for _, o := range sess.owed {
		switch {
		case o.rec.Batch == "":
			fresh = append(fresh, o)
		case o.reader != nil && *o.reader == *me:
			if !mine || o.rec.Batch < id {
				id, mine = o.rec.Batch, true
			}
		case !mine && o.reader.free() && (id == "" || o.rec.Batch < id):
			id = o.rec.Batch
		}
	}
	switch {
	case id != "":
		for _, o := range sess.owed {
			if o.rec.Batch == id && !mine {
				s.take(sess, o, id, me)
			}
		}
	case len(fresh) > 0:
		id = handles.NewBatchID()
		slices.SortFunc(fresh, func(a, b *owed) int { return strings.Compare(string(a.rec.HandleID), string(b.rec.HandleID)) })
		if most > 0 && len(fresh) > most {
			fresh = fresh[:most]
		}
		for _, o := range fresh {
			s.take(sess, o, id, me)
		}
	default:
		return b, nil
	}
	var commits []*journal.Commit
	for _, o := range sess.owed {
		if o.rec.Batch == id {
			commits = o.awaitTaken(commits)
			o.give()
			b.Redelivered = b.Redelivered || o.again
		}
	}
	b.Event, b.Batch = wire.CompletedKey, id
	b.Completions = completions(sess.owed, func(o *owed) bool { return o.rec.Batch == id })
	b.Count = len(b.Completions)
	sess.armed = true // a reader came: what ends from now on is news again
	return b, commits
}

// take gives one end to a reader, who is told once that is durable. s.mu is held.
func (s *Supervisor) take(sess *session, o *owed, batch string, to *reader) {
	o.rec.Batch, o.reader = batch, to
	s.watchReader(sess, to)
	o.taken = s.writeRecord(&o.rec, "taken", map[string]any{"batch": batch, "reader": to})
}

// awaitTaken adds what an answer with it has to wait for, whoever's call took
// it: the end of a run takes it for who waits, and a reader may ask twice at
// once. s.mu is held.
func (o *owed) awaitTaken(commits []*journal.Commit) []*journal.Commit {
	if o.taken == nil {
		return commits
	}
	return append(commits, o.taken)
}

// watchReader tells the session when a reader dies: what it took and did not
// acknowledge is there for others. s.mu is held.
func (s *Supervisor) watchReader(sess *session, r *reader) {
	if r == nil || r.Process.PID == 0 || r.Process.PID == pid() || s.readers[r.Process] {
		return
	}
	w, err := platform.WatchProcess(identity(&r.Process))
	if err != nil {
		return // it is gone, or nobody can tell: then it is free already
	}
	s.readers[r.Process] = true
	go func() { // ends with the reader, or with this process
		defer w.Close()
		select {
		case <-w.Done():
		case <-s.life.Done():
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.readers, r.Process)
		sess.armed = true
		s.announce(sess)
		sess.changed()
	}()
}

// takeOne takes the end of one run for a reader that waited for it. It is ""
// when there is nothing to be taken: it is not owed, or a living reader has it.
func (s *Supervisor) takeOne(id handles.ID, name string, who Caller) (batch string, again bool, err error) {
	s.mu.Lock()
	sess := s.sessions[name]
	if sess == nil || sess.owed[id] == nil {
		s.mu.Unlock()
		return "", false, nil
	}
	o, me := sess.owed[id], readerOf(who)
	switch {
	case o.rec.Batch != "" && o.reader != nil && *o.reader == *me:
	case o.rec.Batch == "" || o.reader.free():
		s.take(sess, o, handles.NewBatchID(), me)
	default:
		s.mu.Unlock()
		return "", false, nil
	}
	o.give()
	batch, again = o.rec.Batch, o.again
	commits := o.awaitTaken(nil)
	s.mu.Unlock()
	return batch, again, committed(commits, "record what was taken")
}
