package journal

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"procsup/handles"
)

const (
	maxGroup   = 512                   // batches in one transaction, so that the first does not wait for ever
	retryFirst = 20 * time.Millisecond // a batch that must land is tried again so soon
	retryMost  = time.Second           // and at last so often
	remakeWait = 250 * time.Millisecond
)

// A writer is the one goroutine that writes. Only it touches what is in here.
type writer struct {
	j       *Journal
	c       *conn
	res     reserve
	pending []item // taken from the queue
	alone   int    // so many of them go one by one
	trouble bool   // Options.Trouble has been told
	pages   int    // about so many are in the WAL since the last checkpoint
	unclean bool   // a commit failed half way and could not be wiped out
}

// run commits what is submitted until Close was called and nothing is left.
func (w *writer) run() {
	defer close(w.j.done)
	for {
		closing := w.take()
		for len(w.pending) > 0 {
			n := w.batches()
			items := w.pending[:n]
			w.pending = w.pending[n:]
			switch {
			case items[0].job != nil:
				items[0].commit.settle(items[0].job(w))
			case n == 1:
				w.single(items)
			case !w.together(items):
				w.alone, w.pending = n, items[:n+len(w.pending)] // back, to be tried one by one
			}
			w.tidy(false)
		}
		if closing {
			return
		}
	}
}

// take waits for something to do. While the reserve is not what it should be it
// tries to make it so now and then.
func (w *writer) take() (closing bool) {
	for {
		w.j.mu.Lock()
		w.pending, closing = w.j.queue, w.j.closing
		w.j.queue = nil
		w.j.mu.Unlock()
		w.res.fit(w.j.reserved.Load()) // after taking: what was reserved for them counts
		if len(w.pending) > 0 || closing {
			return closing
		}
		w.tidy(true)
		if w.res.short == nil {
			<-w.j.wake
			continue
		}
		select {
		case <-w.j.wake:
		case <-time.After(remakeWait):
		}
	}
}

// batches counts what is next: batches that go together, or one job.
func (w *writer) batches() int {
	if w.alone > 0 || w.res.short != nil {
		w.alone = max(0, w.alone-1)
		return 1
	}
	for i := range w.pending {
		if w.pending[i].job != nil {
			return max(1, i)
		}
		if i == maxGroup {
			return i
		}
	}
	return len(w.pending)
}

// together commits items in one transaction. When that fails it settles none:
// one that cannot be written shall spoil no other.
func (w *writer) together(items []item) bool {
	if err := w.transact(items); err != nil {
		return false
	}
	w.report(nil)
	for i := range items {
		items[i].commit.settle(nil)
	}
	return true
}

// single commits the one item of one, or refuses it.
func (w *writer) single(one []item) {
	it := one[0]
	if w.res.short != nil && !it.batch.Must {
		it.commit.settle(refused(fmt.Errorf("no room for the ends of what is running: %w", w.res.short)))
		return
	}
	err := w.transact(one)
	if w.makeRoom(err) {
		err = w.transact(one)
	}
	switch {
	case err == nil:
		w.report(nil)
	case !it.batch.Must || !passing(err):
		w.report(err)
		err = refused(err)
		if w.unclean {
			err = errors.Join(err, handles.ErrOutcomeUnknown)
		}
	default:
		err = w.insist(one, err)
	}
	it.commit.settle(err)
}

// insist writes a batch that must land: it gives up the reserve, piece by
// piece, then tries again and again until Close. What may be refused meanwhile
// is refused at once.
func (w *writer) insist(one []item, err error) error {
	w.report(err)
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		for w.res.release(err) {
			if err = w.transact(one); err == nil || !passing(err) {
				break
			}
		}
		if err == nil || !passing(err) {
			break
		}
		closing := w.pause(wait, err)
		if err = w.transact(one); err == nil || !passing(err) || closing {
			break
		}
	}
	if err != nil {
		return refused(err)
	}
	w.report(nil)
	return nil
}

// pause waits for d and refuses what comes in and may be refused. It is cut
// short by Close.
func (w *writer) pause(d time.Duration, cause error) (closing bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		w.pending = sift(w.pending, cause)
		w.j.mu.Lock()
		w.j.queue, closing = sift(w.j.queue, cause), w.j.closing
		w.j.mu.Unlock()
		if closing {
			return true
		}
		select {
		case <-w.j.wake:
		case <-timer.C:
			return false
		}
	}
}

// sift refuses what may be refused and returns the rest.
func sift(items []item, cause error) []item {
	keep := items[:0]
	for _, it := range items {
		if it.job != nil || it.batch.Must {
			keep = append(keep, it)
		} else {
			it.commit.settle(refused(cause))
		}
	}
	clear(items[len(keep):])
	return keep
}

// transact writes items in one transaction. After an error nothing of them is
// in the journal.
func (w *writer) transact(items []item) error {
	if _, err := w.c.begin.run(); err != nil {
		return err
	}
	for i := range items {
		if err := w.write(&items[i].batch); err != nil {
			w.c.rollback.run() // says no more than err
			return err
		}
	}
	_, err := w.c.commit.run()
	if err == nil {
		w.unclean = false
		for i := range items {
			w.wrote(&items[i].batch)
		}
		return nil
	}
	w.c.rollback.run()
	if code(err) != sqlite3.SQLITE_FULL { // then not even the frames are there
		w.wipe()
	}
	return err
}

// wipe overwrites what a failed COMMIT may have left. SQLite writes the last
// frame of a transaction, then syncs and enters it in the index: when one of
// these fails the transaction did not happen, but a process that finds the file
// after a crash would take the frame for a commit. The next commit is written
// over it.
func (w *writer) wipe() {
	_, err := w.c.scrub.run()
	w.unclean = err != nil
}

// write adds one batch to the transaction.
func (w *writer) write(b *Batch) error {
	for i := range b.Entries {
		e := &b.Entries[i]
		var keys driver.Value
		if len(b.Keys) > 0 {
			if k := b.keysOf(e); k != "" {
				keys = k
			}
		}
		if _, err := w.c.entry.run(e.Seq, e.At.UnixNano(), e.Kind, e.Run, e.Body, keys); err != nil {
			return fmt.Errorf("entry %d: %w", e.Seq, err)
		}
	}
	for i := range b.Runs {
		r := &b.Runs[i]
		if err := w.put(r, b.entryOf(r.ID, 0).At, b.entryOf(r.ID, r.Seq).At); err != nil {
			return fmt.Errorf("run %s: %w", r.ID, err)
		}
	}
	for i := range b.Sessions {
		s := &b.Sessions[i]
		if err := w.putSession(s, b.entryOf(SessionEntry(s.Name), s.Seq).At.UnixMilli()); err != nil {
			return err
		}
	}
	for _, k := range b.Keys {
		if _, err := w.c.key.run(k.Key, k.Fingerprint, k.Run); err != nil {
			return fmt.Errorf("key of run %s: %w", k.Run, err)
		}
	}
	return nil
}

// put writes the projection of one run. One that brings a spec is mostly new.
func (w *writer) put(r *Run, first, at time.Time) error {
	n, err := int64(0), error(nil)
	if r.Spec == nil {
		n, err = w.update(r, at)
	}
	if err == nil && n == 0 {
		live, ended := int64(1), int64(0)
		if !r.Live {
			live, ended = 0, at.UnixMilli()
		}
		n, err = w.c.insert.run(r.ID, r.Session, r.Name, r.Status, live, first.UnixMilli(), ended, r.Revision, r.Seq, r.Record, number(r.Owed))
	}
	if err == nil && n == 0 && r.Spec != nil {
		n, err = w.update(r, at)
	}
	if err == nil && n == 0 {
		err = errors.New("it has ended")
	}
	if err == nil && r.Spec != nil {
		_, err = w.c.spec.run(r.Spec, r.ID)
	}
	return err
}

func (w *writer) update(r *Run, at time.Time) (int64, error) {
	if r.Live {
		return w.c.live.run(r.Status, r.Revision, r.Seq, r.Record, r.ID)
	}
	return w.c.end.run(r.Status, r.Revision, r.Seq, r.Record, at.UnixMilli(), number(r.Owed), r.ID)
}

func (w *writer) putSession(s *Session, at int64) error {
	if _, err := w.c.session.run(s.Name, number(s.Live), at, s.Seq, s.Record); err != nil {
		return fmt.Errorf("session %s: %w", s.Name, err)
	}
	return nil
}

// number is a truth value as SQLite keeps it.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// report tells the owner when writing begins to fail, and when it works again.
func (w *writer) report(err error) {
	if (err != nil) == w.trouble {
		return
	}
	w.trouble = err != nil
	if w.j.opt.Trouble != nil {
		w.j.opt.Trouble(err)
	}
}

func refused(err error) error {
	return fmt.Errorf("journal: %w: %w", handles.ErrPersistence, damage(err))
}

// code is SQLite's primary result code, 0 when err is none of SQLite's.
func code(err error) int {
	var e interface{ Code() int } // *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// passing tells errors that may go away: no space, a failing disk, a lock.
func passing(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}

// damage names a damaged file as what it is.
func damage(err error) error {
	switch code(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}
