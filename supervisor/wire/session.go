package wire

import (
	"time"

	"procsup/handles"
)

// Paths of sessions. {s} is the name of one.
const (
	PathSessions        = "/v1/sessions"
	PathSession         = "/v1/sessions/{s}"
	PathSessionClose    = "/v1/sessions/{s}/close"
	PathSessionClear    = "/v1/sessions/{s}/clear"
	PathSessionReset    = "/v1/sessions/{s}/reset"
	PathSessionShutdown = "/v1/sessions/{s}/shutdown"
	PathPending         = "/v1/sessions/{s}/pending"
	PathTake            = "/v1/sessions/{s}/take"
	PathAcknowledge     = "/v1/sessions/{s}/acknowledge"
	PathDeliveries      = "/v1/sessions/{s}/deliveries"
	PathNotices         = "/v1/sessions/{s}/notices"
	PathIdle            = "/v1/sessions/{s}/idle"
	PathScopes          = "/v1/sessions/{s}/scopes"
	PathScopeCancel     = "/v1/sessions/{s}/scopes/{g}/cancel"
	PathAttach          = "/v1/attach"
	PathRun             = "/v1/run"
	PathEvents          = "/v1/handles/{h}/events"
)

// HeaderToken carries the token of the session that a caller runs in; without
// it a caller may do everything. HeaderReader tells two readers of one process
// apart, for the inbox.
const (
	HeaderToken  = "Procsup-Token"
	HeaderReader = "Procsup-Reader"
)

// Limits of a session.
const (
	InboxSize    = 128  // ends that are or will be owed
	NoticeRing   = 256  // notices kept for slow readers
	EventRing    = 1024 // events kept for the receiver of a run
	MaxScopes    = 256
	CompletedKey = "completions" // Batch.Event
	NothingKey   = "nothing_pending"
)

// OpenSession asks for a session. The same name again gives the open one; one
// that was closed is opened anew, as its next generation.
type OpenSession struct {
	Name    string `json:"name,omitempty"`     // "" = one is made up
	BindPID int    `json:"bind_pid,omitempty"` // closed when this process ends
}

// EndSession asks for all work of a session to be ended.
type EndSession struct {
	GraceMS     *int64 `json:"grace_ms,omitempty"` // null = each run's own
	Reason      string `json:"reason,omitempty"`
	By          string `json:"by,omitempty"`           // user, host; "" = user
	RequireIdle bool   `json:"require_idle,omitempty"` // shutdown: refuse while something runs or is owed
}

// SessionReport says what the end of a session's work did.
type SessionReport struct {
	Session      string            `json:"session"`
	Error        handles.Code      `json:"error,omitempty"` // shutdown_timeout: not all was ended in time
	Ended        []handles.ID      `json:"ended"`
	Dropped      []handles.ID      `json:"dropped_results"` // owed, and not delivered any more; the records stay
	StillActive  []handles.ID      `json:"still_active"`
	StillRunning []handles.Process `json:"still_running"`
}

// SessionList answers a list of sessions, by name.
type SessionList struct {
	Sessions []handles.Session `json:"sessions"`
}

// Pending says how many ends are owed: those that wait, and those that were
// taken and not acknowledged.
type Pending struct {
	Count int          `json:"count"`
	Items []Completion `json:"items,omitempty"` // where asked for
}

// A Completion is an end that is owed to a session.
type Completion struct {
	Kind        string          `json:"kind"` // tool_result
	HandleID    handles.ID      `json:"handle_id"`
	Status      handles.Status  `json:"status"`
	Operation   string          `json:"operation"` // command, test, build
	Descriptor  string          `json:"command_or_op_descriptor"`
	StartedAt   time.Time       `json:"started_at"`
	EndedAt     time.Time       `json:"ended_at"`
	DurationMS  int64           `json:"duration_ms"`
	Error       string          `json:"error,omitempty"`
	Batch       string          `json:"batch,omitempty"` // taken in it, and not acknowledged yet
	Redelivered bool            `json:"redelivered,omitempty"`
	Result      *handles.Record `json:"result"`
}

// Take asks for what is owed as one batch. Until it is acknowledged nobody else
// gets it while the reader lives; the reader itself gets it again.
type Take struct {
	Max    int   `json:"max,omitempty"`     // 0 = all
	WaitMS int64 `json:"wait_ms,omitempty"` // wait so long for something; 0 = do not, negative = for ever
}

// Batch is what was taken, by handle id.
type Batch struct {
	Event       string       `json:"event"` // completions, nothing_pending
	Session     string       `json:"session"`
	Batch       string       `json:"batch,omitempty"`
	Redelivered bool         `json:"redelivered,omitempty"` // it was taken before and not acknowledged
	Count       int          `json:"count"`
	Completions []Completion `json:"completions"`
}

// Acknowledge ends the delivery of a batch. It may be repeated.
type Acknowledge struct {
	Batch   string `json:"batch"`
	Outcome string `json:"outcome,omitempty"` // delivered, or returned to the inbox; "" = delivered
}

// Acknowledged answers it.
type Acknowledged struct {
	Batch   string `json:"batch"`
	Count   int    `json:"count"` // ends that this call settled
	Pending int    `json:"pending"`
}

// A Delivery is a batch that was acknowledged.
type Delivery struct {
	Batch   string       `json:"batch"`
	At      time.Time    `json:"at"`
	Handles []handles.ID `json:"handles"`
}

// Deliveries answers a list of them, newest first.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries"`
}

// Kinds of notices. Readers ignore those that they do not know.
const (
	NoticeSubscribed = "subscribed"        // the first line of a stream
	NoticeStarted    = "handle_started"    //
	NoticeFinished   = "handle_finished"   //
	NoticeReady      = "completions_ready" // Count ends are owed: a hint, once an idle period
	NoticeMatched    = "output_matched"    //
	NoticeIsReady    = "handle_ready"      // all its conditions hold
	NoticeNotReady   = "handle_not_ready"  // it was ready and said that it reloads or stops; Why
	NoticeLagged     = "lagged"            // Count notices were missed
	NoticeClosed     = "closed"            // the last line of a closed session
)

// A Notice is an observation; reading it changes nothing.
type Notice struct {
	Seq        int64          `json:"seq"` // of notices; 0 on lagged. To go on after it: since
	Kind       string         `json:"kind"`
	At         time.Time      `json:"at,omitzero"`
	Session    string         `json:"session,omitempty"`
	Generation int            `json:"daemon_generation,omitempty"` // subscribed: notices of earlier ones are gone
	HandleID   handles.ID     `json:"handle_id,omitempty"`
	RunKind    string         `json:"run_kind,omitempty"` // run, handle
	Name       string         `json:"name,omitempty"`
	Status     handles.Status `json:"status,omitempty"`
	Cause      handles.Cause  `json:"cause,omitempty"`
	Error      string         `json:"error,omitempty"`
	ExitCode   *int           `json:"exit_code,omitempty"`
	Signal     string         `json:"signal,omitempty"`
	Pattern    string         `json:"pattern,omitempty"`
	Source     string         `json:"source,omitempty"`
	From       int64          `json:"from,omitempty"`
	To         int64          `json:"to,omitempty"`
	Count      int64          `json:"count,omitempty"`
	Why        string         `json:"why,omitempty"`
}

// Idle says whether a session is quiet, from its state.
type Idle struct {
	Runs       int          `json:"runs"` // active parent runs
	Handles    int          `json:"handles"`
	Flows      int          `json:"flows"`  // always 0: there are none yet
	FSOps      int          `json:"fs_ops"` // the same
	Idle       bool         `json:"idle"`   // nothing of these is left
	Pending    int          `json:"pending"`
	Missing    []handles.ID `json:"missing"`    // expected, and unknown here, not ended, or owed and not delivered
	Unexpected []handles.ID `json:"unexpected"` // owed, and not expected; only where something was
	TimedOut   bool         `json:"timed_out,omitempty"`
}

// Scopes answers a list of scopes.
type Scopes struct {
	Scopes []handles.Scope `json:"scopes"`
}

// ScopeReport says what the cancellation of a scope ended.
type ScopeReport struct {
	Cancelled []string     `json:"cancelled"` // scopes: it and those below it
	Ended     []handles.ID `json:"ended"`
	Still     []handles.ID `json:"still_active"`
}

// Kinds of events.
const (
	EventStarted  = "started"
	EventOutput   = "output"    // bytes From to To of Source can be read
	EventReady    = "ready"     // all conditions hold
	EventNotReady = "not_ready" // it was ready and said that it reloads or stops
	EventStopping = "stopping"
	EventEnded    = "ended"
	EventOverflow = "overflow" // Dropped events are missing here
)

// An Event is something that happened in the life of a run. It carries no
// output; that is read by offset.
type Event struct {
	Seq     int64          `json:"seq"` // from 1 in each supervisor's time
	Kind    string         `json:"kind"`
	At      time.Time      `json:"at,omitzero"`
	Source  string         `json:"source,omitempty"`
	From    int64          `json:"from,omitempty"`
	To      int64          `json:"to,omitempty"`
	Status  handles.Status `json:"status,omitempty"`
	Dropped int64          `json:"dropped,omitempty"`
}

// RunLine is one line of the answer to a foreground run: the envelope first,
// then its record, when it has ended or was released (background_after_ms), which
// its status tells.
type RunLine struct {
	Started *Started        `json:"started,omitempty"`
	Record  *handles.Record `json:"record,omitempty"`
	Error   *handles.Error  `json:"failed,omitempty"` // the supervisor goes away: ask again with the same key
}
