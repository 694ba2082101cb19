package journal

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

const fileName = "journal.db"

// A Journal is open. Its methods may be called from any goroutine.
type Journal struct {
	opt      Options
	path     string
	file     os.FileInfo // what path was when it was opened
	reads    *sql.DB
	q        queries
	lastSeq  int64
	inWAL    int // pages that were in the WAL when it was opened
	warnings []error
	reserved atomic.Int64  // bytes to be kept free, -1 = as it is
	wake     chan struct{} // the writer should look at the queue
	done     chan struct{} // closed when the writer has ended
	close    func() error  // once

	mu        sync.Mutex
	queue     []item
	submitted int64 // highest seq that was submitted
	closing   bool
}

// Open opens the journal in dir, and makes both when they are missing. It does
// not take the state lock. It starts one goroutine, which Close ends. A journal
// of a newer procsup (handles.ErrSchemaNewer), of another user
// (handles.ErrNotOwner), damaged (ErrDamaged) or on a file system that cannot
// hold it (ErrFileSystem) is refused and left as it is.
func Open(dir string, opt Options) (*Journal, error) {
	j, err := open(dir, opt)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", fullDisk(dir, damage(err)))
	}
	return j, nil
}

func open(dir string, opt Options) (*Journal, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	if err := probe(dir); err != nil {
		return nil, err
	}
	j := &Journal{opt: opt, path: filepath.Join(dir, fileName), wake: make(chan struct{}, 1), done: make(chan struct{})}
	j.reserved.Store(-1)
	if err := opened.enter(j.path, j.inspect); err != nil {
		return nil, err
	}
	w := &writer{j: j, res: openReserve(dir)}
	if err := j.connect(w); err != nil {
		opened.leave(j.path)
		return nil, err
	}
	j.close = sync.OnceValue(func() error { return j.end(w) })
	go w.run() // ends after Close, which waits for it
	return j, nil
}

// makeDir makes dir, 0700, if it is missing, and refuses one of another user.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return checkOwner(dir, info)
}

// connect opens what writes and what reads. A full disk may have no room for
// the index of the WAL: then some of the reserve is given up for it.
func (j *Journal) connect(w *writer) (err error) {
	for {
		w.c, err = j.openWriter()
		if err == nil || !passing(err) || !w.res.release(err) {
			break
		}
	}
	if err != nil {
		return err
	}
	w.pages = j.inWAL // who died before it was tidied left it to us
	if j.lastSeq, err = w.c.number("SELECT max(ifnull((SELECT max(seq) FROM journal), 0), (SELECT value FROM meta WHERE name = 'pruned'))"); err == nil {
		j.submitted = j.lastSeq
		err = j.openReads()
	}
	if err != nil {
		return errors.Join(err, w.c.close())
	}
	return nil
}

func (j *Journal) openWriter() (*conn, error) {
	sync := "synchronous(NORMAL)"
	if j.opt.Full {
		sync = "synchronous(FULL)"
	}
	c, err := connect(dsn(j.path, "journal_mode(WAL)", "wal_autocheckpoint(0)", sync))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", j.path, err)
	}
	if err = migrate(c); err == nil {
		err = c.prepare()
	}
	if err == nil {
		j.file, err = os.Lstat(j.path)
	}
	if err == nil { // SQLite falls back on reading alone
		var no bool
		if no, err = c.Conn.(interface{ IsReadOnly(string) (bool, error) }).IsReadOnly("main"); no {
			err = errors.New("it is read-only")
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", j.path, err), c.close())
	}
	return c, nil
}

// create makes an empty journal under another name first, so that a file of
// this name is always a whole one and an empty one is known for damaged.
func create(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".journal-new-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := f.Close(); err != nil {
		return err
	}
	c, err := connect(dsn(f.Name(), "journal_mode(WAL)"))
	if err != nil {
		return err
	}
	if err := errors.Join(migrate(c), c.close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return os.Rename(f.Name(), path) // no hard links here
	}
	return nil
}

// Missing says that what is written now is lost with this process, because the
// file is not at its path any more; nil when it is.
func (j *Journal) Missing() error {
	switch now, err := os.Lstat(j.path); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("journal: %s was deleted", j.path)
	case err != nil:
		return fmt.Errorf("journal: %w", err)
	case !os.SameFile(now, j.file):
		return fmt.Errorf("journal: %s was replaced by another file", j.path)
	}
	return nil
}

// LastSeq is the highest number that was in the journal when it was opened.
func (j *Journal) LastSeq() int64 { return j.lastSeq }

// Warnings are what Open found and could work around: a WAL that is torn, with
// the commits that are lost by it. Each is an ErrDamaged.
func (j *Journal) Warnings() []error { return j.warnings }

// Close waits for what was submitted, refuses what comes after it, and ends the
// writer. A batch that must land and still cannot is refused now. It may be
// called more than once.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.closing = true
	j.mu.Unlock()
	return j.close()
}

func (j *Journal) isClosing() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closing
}

// end is called once.
func (j *Journal) end(w *writer) error {
	select {
	case j.wake <- struct{}{}:
	default:
	}
	<-j.done
	err := errors.Join(j.reads.Close(), w.c.close()) // the writer last: it folds the WAL into the file
	opened.leave(j.path)
	if err != nil {
		return fmt.Errorf("journal: close: %w", err)
	}
	return nil
}

// opened are the journals that this process has open, by path. The kernel drops
// all of a process's POSIX locks on a file when it closes any descriptor of it
// (fcntl(2)), so the files are read by ourselves only when SQLite has none.
var opened = registry{n: map[string]int{}}

type registry struct {
	mu sync.Mutex
	n  map[string]int
}

// enter counts path; before the first it calls look.
func (r *registry) enter(path string, look func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n[path] == 0 {
		if err := look(); err != nil {
			return err
		}
	}
	r.n[path]++
	return nil
}

func (r *registry) leave(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n[path]--; r.n[path] == 0 {
		delete(r.n, path)
	}
}

// base is path without the directory, for messages.
func base(path string) string { return path[strings.LastIndexByte(path, os.PathSeparator)+1:] }
