package journal

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// A Report is what Check found.
type Report struct {
	Entries   int      `json:"entries"`
	Runs      int      `json:"runs"`
	Keys      int      `json:"keys"`
	LastSeq   int64    `json:"last_seq"`
	Damage    []string `json:"damage,omitempty"` // what SQLite says of the file, and what Open found
	Unfit     []string `json:"unfit,omitempty"`  // entries that cannot be folded, or are out of order
	Dirty     []string `json:"dirty,omitempty"`  // projections that are not the fold of their entries
	Repaired  int      `json:"repaired"`         // of Dirty, by Repair
	Reindexed bool     `json:"reindexed,omitempty"`
}

// OK reports whether nothing was found that is still so.
func (r Report) OK() bool {
	return len(r.Damage) == 0 && len(r.Unfit) == 0 && len(r.Dirty) == r.Repaired
}

// A fix makes one projection what its entries say.
type fix struct {
	run          string
	put          *fold // write the run and its spec anew
	drop         bool  // there are no entries of it
	putKeys      [][2]string
	delKeys      []string
	putSessions  []Session
	dropSessions []string
}

// Check reads the whole journal, at one moment, and compares each projection
// with the fold of its entries. It changes nothing and commits go on
// meanwhile. What cannot be read at all is an ErrDamaged.
func (j *Journal) Check() (Report, error) {
	rep, _, err := j.check()
	return rep, err
}

func (j *Journal) check() (rep Report, fixes []fix, err error) {
	tx, err := j.reads.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		if j.isClosing() {
			err = ErrClosed
		}
		return rep, nil, reading(err)
	}
	defer tx.Rollback() // it only read
	for _, w := range j.warnings {
		rep.Damage = append(rep.Damage, w.Error())
	}
	if err = rep.integrity(tx); err == nil {
		err = tx.QueryRow("SELECT count(*), ifnull(max(seq), 0) FROM journal").Scan(&rep.Entries, &rep.LastSeq)
	}
	if err == nil {
		fixes, err = rep.compare(tx)
	}
	return rep, fixes, reading(err)
}

// integrity asks SQLite, which finds broken pages and indexes.
func (rep *Report) integrity(tx *sql.Tx) error {
	rows, err := tx.Query("PRAGMA integrity_check(20)")
	if err != nil {
		return err
	}
	lines, err := collect(rows, one[string])
	if len(lines) != 1 || lines[0] != "ok" {
		rep.Damage = append(rep.Damage, lines...)
	}
	return err
}

// A kept row of the projection, an entry with its keys, and a row of key.
type (
	keptRun struct {
		Run
		ended int64
	}
	keptEntry struct {
		Entry
		ns   int64
		keys sql.NullString
	}
)

// compare walks through entries, runs and keys, all in the order of runs, so
// that only one run is in memory.
func (rep *Report) compare(tx *sql.Tx) (fixes []fix, err error) {
	entries := newCursor(tx, "SELECT seq, at, kind, run, body, keys FROM journal WHERE run <> '' ORDER BY run, seq",
		func(e *keptEntry) []any { return []any{&e.Seq, &e.ns, &e.Kind, &e.Run, &e.Body, &e.keys} })
	defer entries.close()
	runs := newCursor(tx, runColumns+", spec.spec, run.ended FROM run LEFT JOIN spec USING(n) ORDER BY run.id",
		func(r *keptRun) []any { return append(runSpecTo(&r.Run), &r.ended) })
	defer runs.close()
	keys := newCursor(tx, "SELECT key, fingerprint, run FROM key ORDER BY run, key",
		func(k *Key) []any { return []any{&k.Key, &k.Fingerprint, &k.Run} })
	defer keys.close()
	for entries.ok || runs.ok || keys.ok {
		id := least(entries.ok, entries.v.Run, runs.ok, runs.v.ID, keys.ok, keys.v.Run)
		var f fold
		for ; entries.ok && entries.v.Run == id; entries.next() {
			e := entries.v
			e.At = at(e.ns)
			f.add(&e.Entry, e.keys.String)
		}
		var kept *keptRun
		if runs.ok && runs.v.ID == id {
			r := runs.v
			kept = &r
			rep.Runs++
			runs.next()
		}
		x := rep.judge(id, &f, kept)
		for ; keys.ok && keys.v.Run == id; keys.next() {
			rep.Keys++
			rep.judgeKey(&f, keys.v, &x)
		}
		rep.lostKeys(&f, &x)
		if x.put != nil || x.drop || x.putKeys != nil || x.delKeys != nil {
			fixes = append(fixes, x)
		}
	}
	if err := firstError(entries.err, runs.err, keys.err); err != nil {
		return nil, err
	}
	var x fix
	if x.putSessions, x.dropSessions, err = rep.compareSessions(tx); x.putSessions != nil || x.dropSessions != nil {
		fixes = append(fixes, x)
	}
	return fixes, err
}

// judge compares one run. Of a run whose entries do not tell its record nothing
// better is known than what is kept.
func (rep *Report) judge(id string, f *fold, kept *keptRun) fix {
	rep.Unfit = append(rep.Unfit, f.unfit...)
	x := fix{run: id}
	switch {
	case kept == nil && f.records == 0:
	case kept == nil:
		rep.dirty("run %s: it is missing", id)
		x.put = f
	case f.entries == 0:
		rep.dirty("run %s: it has no entry", id)
		x.drop = true
	case f.records == 0:
		rep.Unfit = append(rep.Unfit, fmt.Sprintf("run %s: none of its entries has its record", id))
	default:
		if why := f.differs(&kept.Run, kept.ended); why != "" {
			rep.dirty("run %s: %s", id, why)
			x.put = f
		}
	}
	return x
}

// judgeKey takes k out of what f still expects.
func (rep *Report) judgeKey(f *fold, k Key, x *fix) {
	want, ok := f.keys[k.Key]
	switch {
	case !ok:
		rep.dirty("key %q of run %s: no entry has it", k.Key, k.Run)
		x.delKeys = append(x.delKeys, k.Key)
	case want != k.Fingerprint:
		rep.dirty("key %q of run %s: its fingerprint is not the one of the entry", k.Key, k.Run)
		x.putKeys = append(x.putKeys, [2]string{k.Key, want})
	}
	delete(f.keys, k.Key)
}

func (rep *Report) lostKeys(f *fold, x *fix) {
	for key, print := range f.keys {
		rep.dirty("key %q of run %s: it is missing", key, f.run.ID)
		x.putKeys = append(x.putKeys, [2]string{key, print})
	}
}

func (rep *Report) dirty(format string, args ...any) {
	rep.Dirty = append(rep.Dirty, fmt.Sprintf(format, args...))
}

// least is the first of three ids of which at least one is there.
func least(okA bool, a string, okB bool, b string, okC bool, c string) string {
	id, ok := a, okA
	if okB && (!ok || b < id) {
		id, ok = b, true
	}
	if okC && (!ok || c < id) {
		id = c
	}
	return id
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Repair makes the projections what the entries say, in one transaction, and
// reports what was found and mended. Entries are never changed. It holds up
// commits while it reads.
func (j *Journal) Repair() (rep Report, err error) {
	err = j.do(func(w *writer) error {
		rep, err = w.repair()
		return err
	})
	return rep, err
}

// at is a time as the journal keeps it.
func at(ns int64) time.Time { return time.Unix(0, ns) }
