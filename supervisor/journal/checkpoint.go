package journal

import (
	"context"
	"database/sql/driver"

	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite's own checkpoints come with a commit, and with every commit for as long
// as readers keep the WAL from beginning anew, each with two fsync(2). So we do
// them: when there is nothing to commit, or when the WAL has become long.
const (
	walGood = 1000 // pages; SQLite's own choice
	walLong = 4000 // 16 MiB: the next process reads it again in some 20 ms
)

// wrote estimates the pages that a batch adds to the WAL: too many rather than
// too few, as batches that go together share pages.
func (w *writer) wrote(b *Batch) {
	for i := range b.Entries {
		w.pages += 2 + len(b.Entries[i].Body)>>12
	}
	for i := range b.Runs {
		w.pages += 4 + (len(b.Runs[i].Record)+len(b.Runs[i].Spec))>>12
	}
	w.pages += 2 * len(b.Keys)
}

// tidy moves the WAL into the database when it is time.
func (w *writer) tidy(idle bool) {
	if w.pages < walGood || !idle && w.pages < walLong {
		return
	}
	w.pages = 0
	if n, err := w.c.checkpoint("PASSIVE"); err == nil && n > walLong {
		w.restart()
	}
}

// restart has the next commit begin the WAL anew. Readers of an old state are in
// the way; they are waited for a moment only.
func (w *writer) restart() {
	if w.c.exec("PRAGMA busy_timeout = 10") != nil {
		return
	}
	w.c.checkpoint("RESTART") // if not now, then later
	w.c.exec("PRAGMA busy_timeout = 5000")
}

// checkpoint returns the pages in the WAL.
func (c *conn) checkpoint(mode string) (int64, error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(context.Background(), "PRAGMA wal_checkpoint("+mode+")", nil)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	v := make([]driver.Value, 3) // busy, pages in the WAL, of these in the database
	if err := rows.Next(v); err != nil {
		return 0, err
	}
	n, _ := v[1].(int64)
	return n, nil
}

// makeRoom has the WAL used again from its beginning after the disk was full;
// false: it was not that.
func (w *writer) makeRoom(err error) bool {
	if code(err) != sqlite3.SQLITE_FULL {
		return false
	}
	w.restart()
	return true
}
