package supervisor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// find resolves an id, a unique prefix or a name: to a live run, or to the id
// of one that has ended.
func (s *Supervisor) find(ref, session string) (*run, handles.ID, error) {
	session = canonicalSession(session)
	s.mu.Lock()
	r := s.runs[handles.ID(ref)]
	if r == nil {
		r = s.names[nameKey{session, ref}]
	}
	s.mu.Unlock()
	if r != nil {
		return r, r.id, nil
	}
	id, err := s.journal.Resolve(ref, session)
	if err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[handles.ID(id)], handles.ID(id), nil
}

// Show returns the record of a handle. It is read, never changed by reading.
func (s *Supervisor) Show(_ context.Context, ref, session string) (*handles.Record, error) {
	r, id, err := s.find(ref, session)
	if err != nil {
		return nil, err
	}
	return s.record(r, id)
}

func (s *Supervisor) record(r *run, id handles.ID) (*handles.Record, error) {
	if r != nil {
		return r.visible(), nil
	}
	row, err := s.journal.Run(string(id))
	if err != nil {
		return nil, err
	}
	return decode(row)
}

// visible is the record, which is that of an end once that is durable, and owed,
// so that it can be taken. It takes the lock.
func (r *run) visible() *handles.Record {
	rec, _ := r.state()
	if rec.Status.Terminal() {
		select {
		case <-r.over:
		case <-r.s.life.Done():
		}
	}
	return &rec
}

func decode(row journal.Run) (*handles.Record, error) {
	var rec handles.Record
	if err := json.Unmarshal(row.Record, &rec); err != nil {
		return nil, fmt.Errorf("read record of %s: %w", row.ID, err)
	}
	return &rec, nil
}

// List returns records, newest first.
func (s *Supervisor) List(_ context.Context, f journal.Filter) (*wire.List, error) {
	if f.Session != "" {
		f.Session = canonicalSession(f.Session)
	}
	if f.LiveOnly {
		return s.listLive(f), nil
	}
	s.mu.Lock()
	seq := s.seq
	s.mu.Unlock()
	limit := f.Limit
	if f.Tag != "" {
		f.Limit = 0 // of those that are taken
	}
	rows, more, err := s.journal.List(f)
	if err != nil {
		return nil, err
	}
	out := &wire.List{Handles: make([]handles.Record, 0, len(rows)), More: more, Seq: seq}
	for _, row := range rows {
		rec, err := s.listed(row)
		if err != nil {
			return nil, err
		}
		if f.Tag != "" && f.Tag != kindOf(rec) {
			continue
		}
		if f.Tag != "" && limit > 0 && len(out.Handles) == limit {
			out.More = true
			break
		}
		out.Handles = append(out.Handles, *rec)
	}
	return out, nil
}

// listed is a row of a list as it is now.
func (s *Supervisor) listed(row journal.Run) (*handles.Record, error) {
	s.mu.Lock()
	r := s.runs[handles.ID(row.ID)]
	s.mu.Unlock()
	if r != nil && row.Live {
		return r.visible(), nil
	}
	return decode(row)
}

// kindOf is what a run was started as.
func kindOf(rec *handles.Record) string {
	if rec.Tag == "" {
		return "command"
	}
	return rec.Tag
}

// listLive is List of what has not ended, all of which is in memory.
func (s *Supervisor) listLive(f journal.Filter) *wire.List {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := make([]*run, 0, len(s.runs))
	for _, r := range s.runs {
		if r.durable && (f.Session == "" || r.rec.SessionID == f.Session) && (f.Tag == "" || f.Tag == kindOf(&r.rec)) {
			live = append(live, r)
		}
	}
	slices.SortFunc(live, func(a, b *run) int { // the journal's order
		return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(b.id, a.id))
	})
	out := &wire.List{Seq: s.seq}
	if f.Limit > 0 && len(live) > f.Limit {
		live, out.More = live[:f.Limit], true
	}
	out.Handles = make([]handles.Record, len(live))
	for i, r := range live {
		out.Handles[i] = r.snapshot()
	}
	return out
}

// Journal returns entries after a number, of one run or of all.
func (s *Supervisor) Journal(_ context.Context, after int64, ref string, limit int) ([]wire.JournalEntry, error) {
	id := ""
	if ref != "" {
		_, h, err := s.find(ref, "")
		if err != nil {
			return nil, err
		}
		id = string(h)
	}
	es, err := s.journal.Entries(after, id, limit)
	if err != nil {
		return nil, err
	}
	out := make([]wire.JournalEntry, 0, len(es))
	for _, e := range es {
		out = append(out, wire.JournalEntry{Seq: e.Seq, At: e.At, Kind: e.Kind, Run: e.Run, Body: json.RawMessage(e.Body)})
	}
	return out, nil
}

// CheckJournal verifies the journal and mends projections that differ from it.
func (s *Supervisor) CheckJournal(context.Context) (journal.Report, error) { return s.journal.Check() }

// Hello says who answers.
func (s *Supervisor) Hello(context.Context) (*wire.Hello, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &wire.Hello{
		Protocol: wire.Protocol, Version: wire.Version, PID: pid(), KeeperPID: s.keeperPID, Generation: s.fence,
		StateDir: s.cfg.Dir, StartedAt: s.started.UTC(), Live: len(s.runs),
	}, nil
}
