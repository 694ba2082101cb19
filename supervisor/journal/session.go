package journal

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
)

// Owed are the runs that have ended and whose ends wait to be delivered, oldest
// first, without their specs.
func (j *Journal) Owed() ([]Run, error) {
	rows, err := j.query(j.q.owed)
	if err != nil {
		return nil, err
	}
	return collect(rows, runSpecTo)
}

// Sessions are all that were ever told of and not pruned, by name.
func (j *Journal) Sessions() ([]Session, error) {
	rows, err := j.query(j.q.sessions)
	if err != nil {
		return nil, err
	}
	return collect(rows, sessionTo)
}

// Delivered are at most limit entries of kind delivered with numbers below before,
// newest first. There may be very many of them: read them in parts.
func (j *Journal) Delivered(before int64, limit int) ([]Entry, error) {
	return dated(j.query(j.q.delivered, before, limit))
}

// Returned are the entries of kind returned among the newest so many of all,
// newest first.
func (j *Journal) Returned(among int) ([]Entry, error) { return dated(j.query(j.q.returned, among)) }

func dated(rows *sql.Rows, err error) ([]Entry, error) {
	if err != nil {
		return nil, err
	}
	var ns []int64
	entries, err := collect(rows, func(e *Entry) []any {
		ns = append(ns, 0)
		return []any{&e.Seq, &ns[len(ns)-1], &e.Kind, &e.Run, &e.Body}
	})
	for i := range entries {
		entries[i].At = at(ns[i])
	}
	return entries, err
}

// ForgetSession removes a session and its entries.
func (j *Journal) ForgetSession(name string) error {
	return j.do(func(w *writer) error { return w.removeSessions([]string{name}) })
}

func sessionTo(s *Session) []any { return []any{&s.Name, &s.Live, &s.Seq, &s.Record} }

// A sessionHead is what the projection takes from a handles.Session.
type sessionHead struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// foldSession is the projection that an entry of a session makes.
func foldSession(e *Entry) (s Session, err error) {
	var b struct {
		Session json.RawMessage `json:"session"`
	}
	var h sessionHead
	if err = json.Unmarshal(e.Body, &b); err == nil {
		err = json.Unmarshal(b.Session, &h)
	}
	if name := strings.TrimPrefix(e.Run, sessionEntry); err == nil && h.Name != name {
		err = fmt.Errorf("its record is of %q", h.Name)
	}
	return Session{Name: h.Name, Live: h.Status != "closed", Seq: e.Seq, Record: b.Session}, err
}

// compareSessions compares the sessions with the last entries that tell of them.
func (rep *Report) compareSessions(tx *sql.Tx) (put []Session, drop []string, err error) {
	entries := newCursor(tx, "SELECT seq, at, kind, run, body, NULL FROM journal WHERE seq IN"+
		" (SELECT max(seq) FROM journal WHERE run >= 'session/' AND run < 'session0' GROUP BY run) ORDER BY run",
		func(e *keptEntry) []any { return []any{&e.Seq, &e.ns, &e.Kind, &e.Run, &e.Body, &e.keys} })
	defer entries.close()
	kept := newCursor(tx, "SELECT name, live, seq, record FROM session ORDER BY name", sessionTo)
	defer kept.close()
	for entries.ok || kept.ok {
		name := least(entries.ok, strings.TrimPrefix(entries.v.Run, sessionEntry), kept.ok, kept.v.Name, false, "")
		var want *Session
		if entries.ok && entries.v.Run == SessionEntry(name) {
			e := entries.v.Entry
			if s, err := foldSession(&e); err != nil {
				rep.Unfit = append(rep.Unfit, fmt.Sprintf("entry %d (%s) of %s: %v", e.Seq, e.Kind, e.Run, err))
			} else {
				want = &s
			}
			entries.next()
		}
		switch {
		case kept.ok && kept.v.Name == name:
			k := kept.v
			kept.next()
			if want == nil {
				rep.dirty("session %s: it has no entry", name)
				drop = append(drop, name)
			} else if k.Live != want.Live || k.Seq != want.Seq || !sameJSON(k.Record, want.Record) {
				rep.dirty("session %s: it is not what its last entry says", name)
				put = append(put, *want)
			}
		case want != nil:
			rep.dirty("session %s: it is missing", name)
			put = append(put, *want)
		}
	}
	return put, drop, firstError(entries.err, kept.err)
}
