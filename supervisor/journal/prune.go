package journal

import "time"

const pruneStep = 64 // runs in one transaction, so that commits do not wait

// Prune removes runs that have ended and changed last before olderThan, with
// their entries, specs and keys, and entries of no run of that age; the newest
// keep of the ended, and those whose end is owed, stay whatever their age. It returns how many runs are gone.
// Commits go on between its steps.
func (j *Journal) Prune(olderThan time.Time, keep int) (runs int, err error) {
	before, err := j.pruneBefore(olderThan, keep)
	if err != nil {
		return 0, err
	}
	for {
		var n int
		err := j.do(func(w *writer) (err error) {
			n, err = w.prune(before)
			return err
		})
		runs += n
		if err != nil || n < pruneStep {
			break
		}
	}
	if err == nil {
		err = j.do(func(w *writer) error { return w.pruneSessions(olderThan) })
	}
	for err == nil {
		var n int64
		err = j.do(func(w *writer) (err error) {
			n, err = w.pruneLoose(olderThan)
			return err
		})
		if n < pruneStep {
			break
		}
	}
	return runs, err
}

// pruneBefore is the time before which runs go, in milliseconds.
func (j *Journal) pruneBefore(olderThan time.Time, keep int) (int64, error) {
	before := olderThan.UnixMilli()
	if keep <= 0 {
		return before, nil
	}
	rows, err := j.reads.Query("SELECT ended FROM run WHERE live = 0 ORDER BY ended DESC LIMIT 1 OFFSET ?", keep-1)
	if err != nil {
		if j.isClosing() {
			err = ErrClosed
		}
		return 0, reading(err)
	}
	last, found, err := first(rows, one[int64])
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, nil // there are not so many
	}
	return min(before, last), nil
}

// prune removes the runs of one step.
func (w *writer) prune(before int64) (n int, err error) {
	// through the writer's own connection: it must not wait for readers
	ids, err := w.c.texts("SELECT id FROM run WHERE live = 0 AND owed = 0 AND ended < ? ORDER BY ended LIMIT ?", before, int64(pruneStep))
	if err != nil || len(ids) == 0 {
		return 0, reading(err)
	}
	return len(ids), w.inTransaction(func() error {
		p := w.prepared(
			"UPDATE meta SET value = max(value, ifnull((SELECT max(seq) FROM journal WHERE run = ?), 0)) WHERE name = 'pruned'",
			"DELETE FROM journal WHERE run = ?",
			"DELETE FROM spec WHERE n IN (SELECT n FROM run WHERE id = ?)",
			"DELETE FROM key WHERE run = ?",
			"DELETE FROM run WHERE id = ?",
		)
		defer p.close()
		for _, id := range ids {
			for i := range p.stmts {
				p.run(i, id)
			}
		}
		return p.err
	})
}

// pruneSessions removes sessions that were closed before that.
func (w *writer) pruneSessions(olderThan time.Time) error {
	names, err := w.c.texts("SELECT name FROM session WHERE live = 0 AND changed < ?", olderThan.UnixMilli())
	if err != nil || len(names) == 0 {
		return reading(err)
	}
	return w.removeSessions(names)
}

// removeSessions removes sessions and their entries.
func (w *writer) removeSessions(names []string) error {
	return w.inTransaction(func() error {
		p := w.prepared(
			"UPDATE meta SET value = max(value, ifnull((SELECT max(seq) FROM journal WHERE run = ?), 0)) WHERE name = 'pruned'",
			"DELETE FROM journal WHERE run = ?",
			"DELETE FROM session WHERE name = ?",
		)
		defer p.close()
		for _, name := range names {
			p.run(0, SessionEntry(name))
			p.run(1, SessionEntry(name))
			p.run(2, name)
		}
		return p.err
	})
}

// pruneLoose removes entries of no run.
func (w *writer) pruneLoose(olderThan time.Time) (n int64, err error) {
	err = w.inTransaction(func() error {
		const which = "(SELECT seq FROM journal WHERE run = '' AND at < ? ORDER BY seq LIMIT ?)"
		p := w.prepared(
			"UPDATE meta SET value = max(value, ifnull((SELECT max(seq) FROM "+which+"), 0)) WHERE name = 'pruned'",
			"DELETE FROM journal WHERE seq IN "+which,
		)
		defer p.close()
		p.run(0, olderThan.UnixNano(), int64(pruneStep))
		n = p.run(1, olderThan.UnixNano(), int64(pruneStep))
		return p.err
	})
	return n, err
}

// inTransaction commits what f writes, or nothing of it.
func (w *writer) inTransaction(f func() error) error {
	if _, err := w.c.begin.run(); err != nil {
		return refused(err)
	}
	err := f()
	if err == nil {
		_, err = w.c.commit.run()
	}
	if err != nil {
		w.c.rollback.run()
		return refused(err)
	}
	return nil
}
