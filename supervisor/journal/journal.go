// Package journal keeps the one ordered record of what procsup did, in SQLite,
// and the projections that are read from it. A row is durable before anybody
// is told of it.
//
// The entries are the truth; runs, specs and keys are their fold, and Repair
// can make them again. For that each entry that changes a run carries the whole
// record after it: its Body is {"record":…}, the first one of a run
// {"record":…,"spec":…}. An entry without "record" changes no run. Of a run,
// session, name and time of creation are what its first entry says, for ever.
package journal

import (
	"errors"
	"time"
)

// An Entry is one row of the ordered record. Seq is given by the caller, who
// decides in that order; numbers may be left out, never reused.
type Entry struct {
	Seq  int64     // > that of every entry submitted before
	At   time.Time // zero = now
	Kind string    // admitted, spawned, stop, ended …
	Run  string    // handle id, "" = none
	Body []byte    // JSON
}

// A Run is the projection of one handle: the fold of its entries.
type Run struct {
	ID       string
	Session  string
	Name     string
	Status   string
	Live     bool  // not ended; a run that has ended stays so
	Created  int64 // ms since 1970, for the order of lists: when its first entry was (given to Submit, it is ignored)
	Revision int64
	Seq      int64  // of the entry it is true for, which is in the same batch
	Record   []byte // handles.Record as JSON
	Owed     bool   // it has ended and its record says that delivery is pending
	Spec     []byte // wire.Start as JSON, for restart; nil = unchanged
}

// A Session is the projection of one session: what the last entry that told of
// it says.
type Session struct {
	Name   string
	Live   bool   // not closed
	Seq    int64  // of the entry it is true for, which is in the same batch
	Record []byte // handles.Session as JSON
}

// sessionEntry begins Entry.Run of the entries of a session; its name follows.
// No id of a handle begins so.
const sessionEntry = "session/"

// SessionEntry is Entry.Run of the entries of a session. Their Body is
// {"session":…}, the whole record after it.
func SessionEntry(name string) string { return sessionEntry + name }

// A Key remembers an idempotency key and the answer that was given.
type Key struct {
	Key         string
	Fingerprint string // of the request
	Run         string // has an entry in the same batch
}

// A Batch is committed as a whole.
type Batch struct {
	Entries []Entry
	Runs    []Run
	Keys    []Key
	// Sessions are the projections of the entries of sessions in the batch.
	Sessions []Session
	// Must says that the batch may not be refused for want of space or because
	// the disk fails: it waits, and uses the reserve. Ends are such; admissions
	// are not.
	Must bool
}

// A Filter chooses runs of a list. The zero Filter takes all.
type Filter struct {
	Session  string
	LiveOnly bool
	Limit    int    // 0 = no limit
	Tag      string // command, test, build; "" = all. Supervisor.List looks at it, not the journal
}

// Options of Open. The zero value is what the daemon uses.
type Options struct {
	// Full makes each commit reach the disk (synchronous=FULL), so that it
	// survives a power cut too. Without it a commit survives any death of the
	// process.
	Full bool
	// Verify compares each batch with the fold of its entries and refuses it
	// when they differ. It costs more than the commit itself: for tests.
	Verify bool
	// Trouble is told when the journal cannot be written and why, and with nil
	// when it can again. It is called from the writer: it must not block, and
	// must not wait for a commit.
	Trouble func(error)
}

// Errors to compare with errors.Is, besides those of package handles.
var (
	// ErrDamaged is a journal that is torn, truncated or not a journal.
	ErrDamaged = errors.New("the journal is damaged")
	// ErrClosed answers what was asked after Close.
	ErrClosed = errors.New("the journal is closed")
	// ErrFileSystem is a file system that cannot hold a journal.
	ErrFileSystem = errors.New("the file system cannot hold a journal")
)
