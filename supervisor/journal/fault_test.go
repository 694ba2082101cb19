package journal

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"procsup/handles"
)

// A fault is an error as SQLite gives it.
type fault int

func (f fault) Error() string { return "a fault of the test" }
func (f fault) Code() int     { return int(f) }

// faulty fails the next executions of a statement, after or without doing it.
type faulty struct {
	driver.Stmt
	code int
	left int
}

func (s *faulty) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if s.left != 0 {
		s.left--
		return nil, fault(s.code)
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

// inject makes a statement of the writer fail n times; -1 is always.
func inject(t *testing.T, j *Journal, of func(*conn) *stmt, code, n int) {
	t.Helper()
	must(t, j.do(func(w *writer) error {
		s := of(w.c)
		if f, ok := s.Stmt.(*faulty); ok {
			f.code, f.left = code, n
		} else {
			s.Stmt = &faulty{s.Stmt, code, n}
		}
		return nil
	}))
}

func theCommit(c *conn) *stmt { return c.commit }
func theScrub(c *conn) *stmt  { return c.scrub }

// S3-61, S4-44: a commit that fails is persistence_failed and nothing of it
// stays; only when what it may have left could not be wiped out the outcome is
// unknown too. Both are found through the wrapping.
func TestS3_61_FailedCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	for i, c := range []struct {
		name     string
		commit   int
		scrub    int
		unknown  bool
		scrubbed int64
	}{
		{"full", sqlite3.SQLITE_FULL, 0, false, 0},
		{"I/O", sqlite3.SQLITE_IOERR_FSYNC, 0, false, 1},
		{"I/O twice", sqlite3.SQLITE_IOERR_FSYNC, 1, true, 1},
		{"damaged", sqlite3.SQLITE_CORRUPT, 0, false, 2},
	} {
		inject(t, j, theCommit, c.commit, 2) // a full disk is tried twice
		inject(t, j, theScrub, sqlite3.SQLITE_IOERR, c.scrub)
		s := admitted(int64(2*i+1), id(i))
		err := j.Submit(s.batch()).Wait()
		if !errors.Is(err, handles.ErrPersistence) || errors.Is(err, handles.ErrOutcomeUnknown) != c.unknown {
			t.Errorf("%s: %v, unknown: want %v", c.name, err, c.unknown)
		}
		if errors.Is(err, ErrDamaged) != (c.commit == sqlite3.SQLITE_CORRUPT) {
			t.Errorf("%s: %v", c.name, err)
		}
		inject(t, j, theCommit, 0, 0)
		inject(t, j, theScrub, 0, 0)
		if _, err := j.Run(s.id); !errors.Is(err, handles.ErrNotFound) {
			t.Errorf("%s: the run: %v", c.name, err)
		}
		must(t, j.do(func(w *writer) error {
			n, err := w.c.number("SELECT value FROM meta WHERE name = 'scrubbed'")
			if n != c.scrubbed {
				t.Errorf("%s: wiped %d times, want %d", c.name, n, c.scrubbed)
			}
			return err
		}))
		commit(t, j, admitted(int64(2*i+2), id(100+i))) // what comes after goes on
	}
	if rep := sound(t, j); rep.Runs != 4 {
		t.Errorf("%+v", rep)
	}
}

// S4-41: an end is tried until it lands, and what follows it comes after it,
// though the disk fails for a while.
func TestS4_41_EndOutlivesAFailingDisk(t *testing.T) {
	t.Parallel()
	var told []error
	j, err := Open(t.TempDir(), Options{Verify: true, Trouble: func(err error) { told = append(told, err) }})
	must(t, err)
	commit(t, j, admitted(1, id(1)), admitted(2, id(2)))
	inject(t, j, theCommit, sqlite3.SQLITE_IOERR_WRITE, 4)
	first, second := j.Submit(ended(3, id(1)).batch()), j.Submit(ended(4, id(2)).batch())
	must(t, errors.Join(second.Wait(), first.Err()))
	sound(t, j)
	must(t, j.Close())
	if len(told) != 2 || told[0] == nil || told[1] != nil {
		t.Errorf("told %v, want the trouble and its end", told)
	}
}

// A group that fails together is committed one by one, in order.
func TestS4_41_GroupFallsApart(t *testing.T) {
	t.Parallel()
	j := openIn(t, t.TempDir())
	inject(t, j, theCommit, sqlite3.SQLITE_IOERR_WRITE, 1)
	release := hold(t, j)
	var all []*Commit
	for i := range 10 {
		all = append(all, j.Submit(admitted(int64(i+1), id(i)).batch()))
	}
	release()
	for _, c := range all {
		must(t, c.Wait())
	}
	if rep := sound(t, j); rep.Runs != 10 {
		t.Errorf("%+v", rep)
	}
}
