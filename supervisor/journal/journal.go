// Package journal keeps the one ordered record of what procsup did, in SQLite,
// and the projections that are read from it. A row is durable before anybody
// is told of it.
package journal

import "time"

// An Entry is one row of the ordered record. Seq is given by the caller, who
// decides in that order; numbers may be left out, never reused.
type Entry struct {
	Seq  int64
	At   time.Time
	Kind string // admitted, spawned, stop, ended …
	Run  string // handle id, "" = none
	Body []byte // JSON
}

// A Run is the projection of one handle: the fold of its entries.
type Run struct {
	ID       string
	Session  string
	Name     string
	Status   string
	Live     bool  // not ended
	Created  int64 // ms since 1970, for the order of lists
	Revision int64
	Seq      int64  // of the entry it is true for
	Record   []byte // handles.Record as JSON
	Spec     []byte // wire.Start as JSON, for restart; nil = unchanged
}

// A Key remembers an idempotency key and the answer that was given.
type Key struct {
	Key         string
	Fingerprint string // of the request
	Run         string
}

// A Batch is committed as a whole.
type Batch struct {
	Entries []Entry
	Runs    []Run
	Keys    []Key
	Must    bool // an end: it is never refused for want of space
}

// A Filter chooses runs of a list. The zero Filter takes all.
type Filter struct {
	Session  string
	LiveOnly bool
	Limit    int // 0 = no limit
}
