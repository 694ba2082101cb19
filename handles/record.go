package handles

import "time"

// A Record is all that is known of one run, the same in every door (show,
// list, wait, inbox, notices, `run --json`). Fields that do not apply are null
// or empty, never invented.
type Record struct {
	HandleID   ID        `json:"handle_id"`
	Kind       string    `json:"kind"` // run, handle
	Name       string    `json:"name,omitempty"`
	SessionID  string    `json:"session_id,omitempty"`
	Parent     string    `json:"parent,omitempty"` // the enclosing run, as PROCSUP_RUN names it
	Command    []string  `json:"command"`
	Tag        string    `json:"tag,omitempty"`            // command, test, build
	Descriptor string    `json:"command_or_op_descriptor"` // the command as one line for people
	Dir        string    `json:"dir"`
	Status     Status    `json:"status"`
	Cause      Cause     `json:"cause,omitempty"`
	Error      string    `json:"error,omitempty"`
	ExitCode   *int      `json:"exit_code"` // null when a signal ended it or it never ran
	Signal     string    `json:"signal,omitempty"`
	CoreDumped bool      `json:"core_dumped"`
	SpawnError *SpawnErr `json:"spawn_error,omitempty"`

	PID          int       `json:"pid,omitempty"`
	GroupID      int       `json:"process_group_id,omitempty"`
	ExecIdentity *Exec     `json:"exec_identity,omitempty"`
	Liveness     string    `json:"liveness"` // live, exited, unverifiable
	Containment  string    `json:"containment"`
	Lease        string    `json:"lease,omitempty"`          // awaited, service
	Lifetime     string    `json:"lifetime"`                 // scope, session
	Delivery     string    `json:"delivery"`                 // pending, delivered, dropped, not_applicable
	Batch        string    `json:"delivery_batch,omitempty"` // in which its end was taken
	Scope        string    `json:"scope,omitempty"`
	StartedAt    time.Time `json:"started_at"`
	ReadyAt      time.Time `json:"ready_at,omitzero"` // since when it is ready, or was when it ended; not there while it is not
	EndedAt      time.Time `json:"ended_at,omitzero"`
	DurationMS   int64     `json:"duration_ms"` // by the monotonic clock

	Readiness *Readiness `json:"readiness,omitempty"` // null where no conditions were given

	Stop     *Stop   `json:"stop,omitempty"`
	Ending   string  `json:"ending,omitempty"`   // interrupted (a person's stop), failed (any other), empty (its own)
	Graceful bool    `json:"graceful"`           // exit 0 after our signal
	Events   *Events `json:"events,omitempty"`   // null where none are made
	Output   *Output `json:"output,omitempty"`   // null when streams were inherited
	Stdout   *Text   `json:"stdout,omitempty"`   // head and tail, where asked for
	Stderr   *Text   `json:"stderr,omitempty"`   //
	Usage    *Usage  `json:"usage,omitempty"`    //
	Cleanup  Cleanup `json:"cleanup"`            //
	Revision int64   `json:"revision,omitempty"` // of the stored record; 0 where nothing is stored
	Seq      int64   `json:"seq,omitempty"`      // of the journal row; 0 where nothing is stored
}

// Exec is the identity of the leader, taken once while it could not be reaped.
type Exec struct {
	BootID     string `json:"boot_id"`
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"`
}

// A SpawnErr says at which step a command could not be started.
type SpawnErr struct {
	Step  string `json:"step"`  // lookup, chdir, stdin, exec, fork, cgroup …
	Errno string `json:"errno"` // such as ENOENT
	Path  string `json:"path"`
}

// A Stop is the decision that ended a run.
type Stop struct {
	ID     string `json:"id"`
	By     string `json:"by"` // user, host
	Reason string `json:"reason"`
	Seq    int64  `json:"seq,omitempty"`
	Answer string `json:"answer"` // took, refused, unconfirmed, nothing_running
}

// Events counts what was told of a run while it went on.
type Events struct {
	Total   int64 `json:"total"`
	Dropped int64 `json:"dropped"` // gone before the receiver read them, or there was none
}

// Output says where captured bytes are and whether they are all there.
type Output struct {
	Stdout   *StreamOutput `json:"stdout,omitempty"`
	Stderr   *StreamOutput `json:"stderr,omitempty"`
	Complete bool          `json:"complete"` // false: something outside our reach kept a stream open
}

// StreamOutput is one captured stream.
type StreamOutput struct {
	Path    string  `json:"path,omitempty"` // empty when nothing was kept after the run
	Bytes   int64   `json:"bytes"`          // all that was written
	Omitted []Range `json:"omitted,omitempty"`
	Why     string  `json:"why,omitempty"` // why bytes are missing
}

// A Range of bytes: From is in it, To is not.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Text is a part of a stream, head and tail, ready for JSON. Bytes that are
// valid UTF-8 are in Text, others in Base64; no rune is cut.
type Text struct {
	Encoding string  `json:"encoding"` // utf-8, base64
	Text     string  `json:"text,omitempty"`
	Base64   string  `json:"base64,omitempty"`
	From     int64   `json:"from"`
	To       int64   `json:"to"`
	Total    int64   `json:"total"`
	Omitted  int64   `json:"omitted"` // bytes between From and To that are left out
	Gaps     []Range `json:"gaps,omitempty"`
}

// Usage is what the command and the children it waited for used. MaxRSSBytes
// is null when it cannot be told from the spawner's own size.
type Usage struct {
	UserMS      int64  `json:"user_ms"`
	SystemMS    int64  `json:"system_ms"`
	MaxRSSBytes *int64 `json:"max_rss_bytes"`
}

// Cleanup is what was done to end the tree and what is left of it.
type Cleanup struct {
	Signals   []Sent    `json:"signals"`
	Leftovers []Process `json:"leftovers"`      // alive when the leader ended by itself
	Survivors []Process `json:"survivors"`      // alive at the end of everything
	Kept      bool      `json:"kept,omitempty"` // the survivors were to be left alone
}

// Sent is one step of a stop.
type Sent struct {
	Signal string  `json:"signal"`
	To     string  `json:"to"`            // group, leader, member, cgroup
	PID    int     `json:"pid,omitempty"` // of the group or member
	AtMS   float64 `json:"after_ms"`      // since the run started
	Error  string  `json:"error,omitempty"`
}

// Process names a process that was left.
type Process struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"`
	Command    string `json:"command"`
	Why        string `json:"why,omitempty"`
}
