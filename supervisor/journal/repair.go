package journal

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// A cursor is a query that can be looked at before it is moved on.
type cursor[T any] struct {
	rows *sql.Rows
	to   func(*T) []any
	v    T
	ok   bool // v is a row
	err  error
}

func newCursor[T any](tx *sql.Tx, query string, to func(*T) []any) *cursor[T] {
	c := &cursor[T]{to: to}
	if c.rows, c.err = tx.Query(query); c.err == nil {
		c.next()
	}
	return c
}

func (c *cursor[T]) next() {
	c.v, c.ok = *new(T), false
	if !c.rows.Next() {
		c.err = c.rows.Err()
		return
	}
	c.err = c.rows.Scan(c.to(&c.v)...)
	c.ok = c.err == nil
}

func (c *cursor[T]) close() {
	if c.rows != nil {
		c.rows.Close()
	}
}

// repair holds the write lock first, so that what the readers see stays so. It
// mends the indexes before it trusts what is read through them.
func (w *writer) repair() (rep Report, err error) {
	if _, err := w.c.begin.run(); err != nil {
		return rep, refused(err)
	}
	rep, fixes, err := w.j.check()
	if err == nil && len(rep.Damage) > len(w.j.warnings) {
		rep, fixes, err = w.reindex()
	}
	if err == nil {
		err = w.apply(fixes)
	}
	if err == nil {
		_, err = w.c.commit.run()
	}
	if err != nil {
		w.c.rollback.run()
		return rep, refused(err)
	}
	rep.Repaired = len(rep.Dirty)
	return rep, nil
}

// reindex makes all indexes again. Readers see that only after a commit, so it
// is one of its own. The transaction that was begun goes on.
func (w *writer) reindex() (rep Report, fixes []fix, err error) {
	if err := w.c.exec("REINDEX"); err != nil {
		return rep, nil, err
	}
	if _, err := w.c.commit.run(); err != nil {
		return rep, nil, err
	}
	if _, err := w.c.begin.run(); err != nil {
		return rep, nil, err
	}
	rep, fixes, err = w.j.check()
	rep.Reindexed = true
	return rep, fixes, err
}

// apply writes the fixes into the transaction: what is wrong goes first, then
// nothing is in the way of what is right.
func (w *writer) apply(fixes []fix) error {
	p := w.prepared(
		"DELETE FROM spec WHERE n IN (SELECT n FROM run WHERE id = ?)",
		"DELETE FROM run WHERE id = ?",
		"DELETE FROM key WHERE key = ?",
		"INSERT OR REPLACE INTO key(key, fingerprint, run) VALUES(?, ?, ?)",
		"DELETE FROM session WHERE name = ?",
	)
	defer p.close()
	for _, x := range fixes {
		if x.drop || x.put != nil {
			p.run(0, x.run)
			p.run(1, x.run)
		}
		for _, k := range x.delKeys {
			p.run(2, k)
		}
		for _, name := range x.dropSessions {
			p.run(4, name)
		}
	}
	if p.err == nil {
		p.err = w.c.exec("DELETE FROM spec WHERE n NOT IN (SELECT n FROM run)")
	}
	for _, x := range fixes {
		if x.put != nil && p.err == nil {
			p.err = w.putFold(x.put)
		}
		for _, k := range x.putKeys {
			p.run(3, k[0], k[1], x.run)
		}
		for i := range x.putSessions {
			if p.err == nil {
				p.err = w.putSession(&x.putSessions[i], time.Now().UnixMilli())
			}
		}
	}
	return p.err
}

func (w *writer) putFold(f *fold) error {
	r := &f.run
	_, err := w.c.insert.run(r.ID, r.Session, r.Name, r.Status, number(r.Live), r.Created, f.ended, r.Revision, r.Seq, r.Record, number(r.Owed))
	if err == nil && r.Spec != nil {
		_, err = w.c.spec.run(r.Spec, r.ID)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", r.ID, err)
	}
	return nil
}

// A script is a few statements that are used now and then. After an error it
// does nothing more.
type script struct {
	stmts []*stmt
	err   error
}

func (w *writer) prepared(texts ...string) *script {
	p := &script{}
	for _, text := range texts {
		s, err := w.c.statement(text)
		if err != nil {
			p.err = err
			return p
		}
		p.stmts = append(p.stmts, s)
	}
	return p
}

// run executes statement i and gives the rows it changed.
func (p *script) run(i int, args ...driver.Value) (n int64) {
	if p.err == nil {
		n, p.err = p.stmts[i].run(args...)
	}
	return n
}

func (p *script) close() {
	for _, s := range p.stmts {
		p.err = errors.Join(p.err, s.Close())
	}
}
