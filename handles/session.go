package handles

import "time"

// What became of the end of a run that is owed to its session.
const (
	DeliveryPending   = "pending"        // owed, or will be
	DeliveryDelivered = "delivered"      // acknowledged by who took it
	DeliveryDropped   = "dropped"        // its session was closed, cleared or shut down first
	DeliveryNone      = "not_applicable" // nothing is owed: a parent run, a service
)

// What a session is.
const (
	SessionOpen   = "open"
	SessionClosed = "closed" // it takes no new work
)

// A Session is the owner of runs: an inbox, notices, at most one parent run.
type Session struct {
	Name       string    `json:"name"`
	Status     string    `json:"status"`     // open, closed
	Generation int       `json:"generation"` // from 1; reset and reopening make the next one
	CreatedAt  time.Time `json:"created_at"`
	ClosedAt   time.Time `json:"closed_at,omitzero"`
	Why        string    `json:"why,omitempty"`     // why it was closed
	Bind       *Exec     `json:"bind,omitempty"`    // it is closed when this process ends
	Attached   bool      `json:"attached"`          // it is closed when the connection that opened it ends
	Creator    string    `json:"creator,omitempty"` // the session from within which it was opened
	Token      string    `json:"token,omitempty"`   // shown to who opens it; hygiene, not a wall
	Scopes     []Scope   `json:"scopes,omitempty"`
	Seq        int64     `json:"seq"`
	Active     ID        `json:"active_run_id,omitempty"` // the parent run
	Live       int       `json:"live"`                    // handles that have not ended
	Pending    int       `json:"pending"`                 // ends that are owed
}

// A Scope is one cancellation token over several runs of a session.
type Scope struct {
	Name      string `json:"name"`
	Parent    string `json:"parent,omitempty"`
	Cancelled int64  `json:"cancelled_seq,omitempty"` // the journal's number of its cancellation, 0 = it is open
}
