// Package wire is what crosses the socket: paths and JSON bodies. An answer that
// is not 2xx has a handles.Error for body.
// It has no behaviour. Fields are only ever added; an unknown field is ignored
// by whoever reads it. Durations are whole milliseconds, times RFC 3339 UTC.
package wire

import (
	"time"

	"procsup/handles"
)

// Protocol is the version of this API; it grows by one when something is added
// that a client may want to ask for.
const Protocol = 1

// Version is that of the last release in CHANGELOG.md.
const Version = "0.1.0"

// Paths of the API. {h} is a handle id, a unique prefix of one, or a name.
const (
	PathHello      = "/v1/hello"
	PathHandles    = "/v1/handles"
	PathHandle     = "/v1/handles/{h}"
	PathWait       = "/v1/handles/{h}/wait"
	PathWaitOutput = "/v1/handles/{h}/wait-output"
	PathCancel     = "/v1/handles/{h}/cancel"
	PathRestart    = "/v1/handles/{h}/restart"
	PathSignal     = "/v1/handles/{h}/signal"
	PathStdin      = "/v1/handles/{h}/stdin"
	PathOutput     = "/v1/handles/{h}/output"
	PathCancelByID = "/v1/cancel_handle"
	PathJournal    = "/v1/journal"
	PathShutdown   = "/v1/shutdown"
	PathOpenAPI    = "/v1/openapi.json"
)

// Hello says who answers.
type Hello struct {
	Protocol   int       `json:"protocol"`
	Version    string    `json:"version"`
	PID        int       `json:"pid"`        // of the supervisor
	KeeperPID  int       `json:"keeper_pid"` // 0: embedded, no keeper
	Generation int       `json:"generation"` // supervisors since the keeper started, from 1
	StateDir   string    `json:"state_dir"`
	StartedAt  time.Time `json:"started_at"`
	Live       int       `json:"live"` // handles that have not ended
}

// Start asks for a command to be started.
type Start struct {
	Command []string `json:"command"`
	Dir     string   `json:"dir,omitempty"`   // absolute; "" = /
	Env     []string `json:"env"`             // complete, K=V; the daemon adds only PROCSUP_RUN
	Umask   *int     `json:"umask,omitempty"` // null = the daemon's
	Session string   `json:"session,omitempty"`
	Name    string   `json:"name,omitempty"` // unique among the live handles of its session
	Tag     string   `json:"tag,omitempty"`  // command, test, build
	// Lease is awaited or service; "" = the session's default.
	Lease       string `json:"lease,omitempty"`
	DeadlineMS  int64  `json:"deadline_ms,omitempty"`  // 0 = none
	NoOutputMS  int64  `json:"no_output_ms,omitempty"` // 0 = none
	GraceMS     *int64 `json:"grace_ms,omitempty"`     // null = 2 s, 10 s for lease service
	StopSignal  string `json:"stop_signal,omitempty"`  // "" = TERM
	Leftover    string `json:"leftover,omitempty"`     // kill, wait, keep; "" = kill
	Containment string `json:"containment,omitempty"`
	Stdin       string `json:"stdin,omitempty"` // null, pipe, or an absolute path; "" = null
	Merge       bool   `json:"merge,omitempty"`
	MaxOutput   int64  `json:"max_output,omitempty"`   // bytes per stream, 0 = 1 GiB
	NoStoreEnv  bool   `json:"no_store_env,omitempty"` // the environment is not journaled; restart is refused
	Idempotency string `json:"idempotency_key,omitempty"`
	// BackgroundMS: wait so long for the end before answering. A foreground run
	// that has not ended by then is released: it goes on as a handle.
	BackgroundMS *int64 `json:"background_after_ms,omitempty"`
	// Foreground makes it the session's parent run: one at a time, and it ends
	// with its caller. Only PathRun takes it.
	Foreground  bool          `json:"foreground,omitempty"`
	Owner       *handles.Exec `json:"owner,omitempty"`        // the caller of a foreground run; what a client says here is ignored
	Scope       string        `json:"scope,omitempty"`        // an open scope of the session
	Events      int           `json:"events,omitempty"`       // kept for a slow receiver; 0 = 1024
	NotifyMatch []string      `json:"notify_match,omitempty"` // literal patterns; a notice when each is first written
	Inline      bool          `json:"inline,omitempty"`       // foreground: head and tail of the output in the record
	// Ready are the conditions that all have to hold for the run to be ready, see
	// package ready. It is ended when they do not in time.
	Ready      []string `json:"ready,omitempty"`
	ReadyMS    *int64   `json:"ready_timeout_ms,omitempty"` // null = 90 s, 0 = none
	WatchdogMS int64    `json:"watchdog_ms,omitempty"`      // with notify: WATCHDOG_USEC for the command; 0 = none
}

// Started answers a start: the envelope of design.md §7.
type Started struct {
	HandleID    handles.ID        `json:"handle_id"`
	CommandID   handles.ID        `json:"command_id"`
	StartedAt   time.Time         `json:"started_at"`
	Status      handles.Status    `json:"status"`
	Descriptor  string            `json:"command_or_op_descriptor"`
	Name        string            `json:"name,omitempty"`
	SessionID   string            `json:"session_id"`
	PID         int               `json:"pid,omitempty"`
	GroupID     int               `json:"process_group_id,omitempty"`
	Exec        *handles.Exec     `json:"exec_identity,omitempty"`
	OutputPath  string            `json:"output_path"`
	StdoutPath  string            `json:"stdout_path"`
	StderrPath  string            `json:"stderr_path"`
	Sandbox     Sandbox           `json:"sandbox"`
	Error       string            `json:"error,omitempty"`
	SpawnError  *handles.SpawnErr `json:"spawn_error,omitempty"`
	Revision    int64             `json:"revision,omitempty"` // of the record that this answer tells of
	Seq         int64             `json:"seq,omitempty"`      // of the journal row that it is true for
	Replayed    bool              `json:"replayed,omitempty"` // the idempotency key was known: this is the first answer again
	Batch       string            `json:"batch,omitempty"`    // with background_after: the end was taken from the inbox in it: acknowledge it
	Redelivered bool              `json:"redelivered,omitempty"`
	Record      *handles.Record   `json:"record,omitempty"` // with background_after: the run so far
}

// Sandbox says honestly that there is none.
type Sandbox struct {
	Kind     string `json:"kind"`
	Enforced bool   `json:"enforced"`
}

// Wait statuses.
const (
	WaitOK      = "ok"      // ended well
	WaitError   = "error"   // ended otherwise
	WaitPending = "pending" // not ended, and the caller did not want to wait
	WaitTimeout = "timeout" // not ended within the timeout; nothing was cancelled
)

// Waited answers a wait.
type Waited struct {
	Status       string          `json:"wait_status"`
	TimeoutPhase string          `json:"timeout_phase,omitempty"` // queued, starting, running, stopping, observing
	Batch        string          `json:"batch,omitempty"`         // the end was taken from the inbox in it: acknowledge it
	Redelivered  bool            `json:"redelivered,omitempty"`   // it was taken before and not acknowledged
	Record       *handles.Record `json:"record"`
}

// WaitOutput asks to be answered when a pattern was written.
type WaitOutput struct {
	Pattern   string `json:"pattern"`
	Regex     bool   `json:"regex,omitempty"`
	Raw       bool   `json:"raw,omitempty"`        // match raw bytes, not the text without ANSI escapes and CR
	Source    string `json:"source,omitempty"`     // stdout, stderr; "" = both
	From      int64  `json:"from,omitempty"`       // offset to begin at
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // 0 = none
}

// Output wait statuses.
const (
	Matched  = "matched"
	Exited   = "exited"
	TimedOut = "timed_out"
)

// OutputWaited answers a wait for output.
type OutputWaited struct {
	Status string          `json:"status"` // matched, exited, timed_out
	Source string          `json:"source,omitempty"`
	From   int64           `json:"from"` // raw offsets of the match
	To     int64           `json:"to"`
	Text   string          `json:"text,omitempty"`
	Record *handles.Record `json:"record"`
}

// Cancel asks for a run to be ended.
type Cancel struct {
	Reason       string `json:"reason,omitempty"`
	By           string `json:"by,omitempty"` // user, host; "" = user
	GraceMS      *int64 `json:"grace_ms,omitempty"`
	Signal       string `json:"signal,omitempty"`         // instead of the run's stop signal
	WaitResultMS int64  `json:"wait_result_ms,omitempty"` // wait so long for the end; 0 = until it has ended
	NoWait       bool   `json:"no_wait,omitempty"`        // answer once the stop is durable
	Take         bool   `json:"take,omitempty"`           // take the end out of the inbox, if it is owed
	// Idempotency makes a repeat safe: what the first request with this key
	// stopped counts as stopped by the repeat.
	Idempotency string `json:"idempotency_key,omitempty"`
}

// Cancelled answers a cancel.
type Cancelled struct {
	Cancelled   bool            `json:"cancelled"` // this request ended the run and nothing of it is left
	Stopping    bool            `json:"stopping,omitempty"`
	Batch       string          `json:"batch,omitempty"` // the end was taken from the inbox in it: acknowledge it
	Redelivered bool            `json:"redelivered,omitempty"`
	Record      *handles.Record `json:"record"`
}

// CancelByID is the body of PathCancelByID.
type CancelByID struct {
	HandleID string `json:"handle_id"`
	Cancel
}

// Signal asks for a signal to be sent.
type Signal struct {
	Signal string `json:"signal"`
	Leader bool   `json:"leader,omitempty"` // to the leader alone, not its group
}

// List answers a list, newest first.
type List struct {
	Handles []handles.Record `json:"handles"`
	More    bool             `json:"more,omitempty"` // limit cut the list
	Seq     int64            `json:"seq"`            // the journal's position this is true for
}

// JournalEntry is one row of the journal.
type JournalEntry struct {
	Seq  int64     `json:"seq"`
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	Run  string    `json:"run,omitempty"`
	Body any       `json:"body,omitempty"`
}
