package journal

import (
	"database/sql"
	"errors"
	"fmt"

	"procsup/handles"
)

const readers = 4

// queries are the statements that read, each prepared once per connection.
type queries struct {
	unfinished, run, spec, key, entries, entriesOf *sql.Stmt
	all, bySession, byLive, bySessionLive          *sql.Stmt
	byID, byPrefix, byName, byNameAnywhere         *sql.Stmt
	owed, sessions, delivered, returned            *sql.Stmt
}

const runColumns = "SELECT run.id, run.session, run.name, run.status, run.live, run.created, run.revision, run.seq, run.record, run.owed"

// openReads opens the connections that read. They cannot write, and leave
// checkpoints to the writer.
func (j *Journal) openReads() error {
	db, err := sql.Open("sqlite", dsn(j.path, "query_only(1)", "wal_autocheckpoint(0)"))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	const order, limit = " ORDER BY run.created DESC, run.id DESC", " LIMIT ?"
	const entry = "SELECT seq, at, kind, run, body FROM journal WHERE seq > ?"
	const named = "SELECT id, live FROM run WHERE name <> '' AND name = ?"
	const newest = " ORDER BY live DESC, created DESC, id DESC LIMIT ?"
	for _, q := range []struct {
		to  **sql.Stmt
		sql string
	}{
		{&j.q.unfinished, runColumns + ", spec.spec FROM run LEFT JOIN spec USING(n) WHERE live = 1 ORDER BY run.created, run.id"},
		{&j.q.run, runColumns + ", spec.spec FROM run LEFT JOIN spec USING(n) WHERE run.id = ?"},
		{&j.q.spec, "SELECT spec.spec FROM run LEFT JOIN spec USING(n) WHERE run.id = ?"},
		{&j.q.key, "SELECT key, fingerprint, run FROM key WHERE key = ?"},
		{&j.q.entries, entry + " ORDER BY seq LIMIT ?"},
		{&j.q.entriesOf, entry + " AND run = ? ORDER BY seq LIMIT ?"},
		{&j.q.all, runColumns + " FROM run" + order + limit},
		{&j.q.bySession, runColumns + " FROM run WHERE session = ?" + order + limit},
		{&j.q.byLive, runColumns + " FROM run WHERE live = 1" + order + limit},
		// the plus keeps it from the index of all that the session ever ran
		{&j.q.bySessionLive, runColumns + " FROM run WHERE live = 1 AND +session = ?" + order + limit},
		{&j.q.byID, "SELECT id FROM run WHERE id = ?"},
		{&j.q.byPrefix, "SELECT id FROM run WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT ?"},
		{&j.q.byName, named + " AND session = ?" + newest},
		{&j.q.byNameAnywhere, named + newest},
		{&j.q.owed, runColumns + ", NULL FROM run WHERE owed = 1 ORDER BY run.created, run.id"},
		{&j.q.sessions, "SELECT name, live, seq, record FROM session ORDER BY name"},
		{&j.q.delivered, "SELECT seq, at, kind, run, body FROM journal WHERE kind = 'delivered' AND seq < ? ORDER BY seq DESC LIMIT ?"},
		{&j.q.returned, "SELECT seq, at, kind, run, body FROM journal WHERE seq > (SELECT max(seq) FROM journal) - ? AND kind = 'returned' ORDER BY seq DESC"},
	} {
		if *q.to, err = db.Prepare(q.sql); err != nil {
			return errors.Join(fmt.Errorf("prepare %q: %w", q.sql, err), db.Close())
		}
	}
	j.reads = db
	return nil
}

// query runs s. Each read sees the journal as it is at one moment.
func (j *Journal) query(s *sql.Stmt, args ...any) (*sql.Rows, error) {
	rows, err := s.Query(args...)
	if err != nil && j.isClosing() { // database/sql has no name for that
		return nil, fmt.Errorf("journal: %w", ErrClosed)
	}
	return rows, reading(err)
}

// reading names the error of a read.
func reading(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("journal: read: %w", damage(err))
}

// Unfinished are the runs that have not ended, with their specs, oldest first.
func (j *Journal) Unfinished() ([]Run, error) {
	rows, err := j.query(j.q.unfinished)
	if err != nil {
		return nil, err
	}
	return collect(rows, runSpecTo)
}

// Run is one run with its spec, or handles.ErrNotFound.
func (j *Journal) Run(id string) (Run, error) {
	rows, err := j.query(j.q.run, id)
	if err != nil {
		return Run{}, err
	}
	r, found, err := first(rows, runSpecTo)
	if err == nil && !found {
		err = notFound(id)
	}
	return r, err
}

// Spec is the spec of a run, nil when none was kept.
func (j *Journal) Spec(id string) ([]byte, error) {
	rows, err := j.query(j.q.spec, id)
	if err != nil {
		return nil, err
	}
	spec, found, err := first(rows, one[[]byte])
	if err == nil && !found {
		err = notFound(id)
	}
	return spec, err
}

func notFound(id string) error {
	return &handles.Error{Code: handles.CodeNotFound, Message: fmt.Sprintf("no handle %q", id), ID: id}
}

// List gives the runs that f takes, without their specs, newest first, those of
// the same millisecond by id descending; more says that the limit left some out.
func (j *Journal) List(f Filter) (runs []Run, more bool, err error) {
	limit := -1
	if f.Limit > 0 {
		limit = f.Limit + 1
	}
	var rows *sql.Rows
	switch {
	case f.LiveOnly && f.Session != "":
		rows, err = j.query(j.q.bySessionLive, f.Session, limit)
	case f.LiveOnly:
		rows, err = j.query(j.q.byLive, limit)
	case f.Session != "":
		rows, err = j.query(j.q.bySession, f.Session, limit)
	default:
		rows, err = j.query(j.q.all, limit)
	}
	if err != nil {
		return nil, false, err
	}
	runs, err = collect(rows, runTo)
	if f.Limit > 0 && len(runs) > f.Limit {
		runs, more = runs[:f.Limit], true
	}
	return runs, more, err
}

// Key looks up an idempotency key.
func (j *Journal) Key(key string) (Key, bool, error) {
	rows, err := j.query(j.q.key, key)
	if err != nil {
		return Key{}, false, err
	}
	return first(rows, func(k *Key) []any { return []any{&k.Key, &k.Fingerprint, &k.Run} })
}

// Entries are at most limit entries after that number, in order, of one run or
// with "" of all; limit 0 means no limit.
func (j *Journal) Entries(after int64, run string, limit int) ([]Entry, error) {
	if limit <= 0 {
		limit = -1
	}
	var rows *sql.Rows
	var err error
	if run != "" {
		rows, err = j.query(j.q.entriesOf, after, run, limit)
	} else {
		rows, err = j.query(j.q.entries, after, limit)
	}
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

// collect reads all rows and closes them. to says where the columns go.
func collect[T any](rows *sql.Rows, to func(*T) []any) ([]T, error) {
	defer rows.Close()
	var all []T
	for rows.Next() {
		var v T
		if err := rows.Scan(to(&v)...); err != nil {
			return nil, reading(err)
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		return nil, reading(err)
	}
	return all, nil
}

// first reads the first row, if there is one, and closes rows.
func first[T any](rows *sql.Rows, to func(*T) []any) (v T, found bool, err error) {
	all, err := collect(rows, to)
	if len(all) > 0 {
		return all[0], true, nil
	}
	return v, false, err
}

// one is for rows of one column.
func one[T any](v *T) []any { return []any{v} }

func runTo(r *Run) []any {
	return []any{&r.ID, &r.Session, &r.Name, &r.Status, &r.Live, &r.Created, &r.Revision, &r.Seq, &r.Record, &r.Owed}
}

func runSpecTo(r *Run) []any { return append(runTo(r), &r.Spec) }
