package handles

import "time"

// Where the readiness of a run stands.
const (
	ReadyWaiting   = "waiting"   // some condition has not held yet
	ReadyNow       = "ready"     //
	ReadyReloading = "reloading" // it was ready and said RELOADING=1: not ready until it says READY=1
	ReadyStopping  = "stopping"  // it said STOPPING=1
	ReadyAborted   = "aborted"   // it did not become ready in time and was ended
)

// Readiness is how far a run is that was started with conditions. It is never
// changed: a change makes another.
type Readiness struct {
	State      string      `json:"state"`
	Conditions []Condition `json:"conditions"`
	FirstAt    time.Time   `json:"first_at,omitzero"`     // when it was ready for the first time
	Until      time.Time   `json:"until,omitzero"`        // it is ended if it is not ready by then
	Status     string      `json:"status,omitempty"`      // what it last said of itself: STATUS of sd_notify(3)
	MainPID    int         `json:"main_pid,omitempty"`    // MAINPID, if it is in the run's tree
	WatchdogMS int64       `json:"watchdog_ms,omitempty"` // it is ended when it does not say WATCHDOG=1 for so long
	Refused    int64       `json:"fdstore_refused"`       // descriptors that it wanted kept: closed
	Ignored    Ignored     `json:"ignored"`               // datagrams
	LastOutput *LastOutput `json:"last_output,omitempty"` // of one that was never ready
}

// A Condition is one of those that all have to hold. It has held from HeldAt on
// and is not looked at again.
type Condition struct {
	Condition string    `json:"condition"`
	HeldAt    time.Time `json:"held_at,omitzero"`
	Text      string    `json:"text,omitempty"` // what matched, or the line on the descriptor
	Why       string    `json:"why,omitempty"`  // why it had not held when the start was aborted
}

// Ignored counts datagrams on a run's notify socket that changed nothing.
type Ignored struct {
	Foreign   int64 `json:"foreign"`   // of a process that is not of the run's tree, or that cannot be told to be
	Malformed int64 `json:"malformed"` //
	TooLong   int64 `json:"too_long"`  // more than 4096 bytes
}

// LastOutput is the end of what a command wrote, at most 1 KiB of each stream.
type LastOutput struct {
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

// Clone is a copy to change.
func (r *Readiness) Clone() *Readiness {
	c := *r
	c.Conditions = append([]Condition(nil), r.Conditions...)
	return &c
}
