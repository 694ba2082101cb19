package wire

import "procsup/handles"

// PathJournalCheck verifies the journal; PathIndex says when the bytes of a run
// came.
const (
	PathJournalCheck = "/v1/journal/check"
	PathIndex        = "/v1/handles/{h}/index"
)

// JournalPage answers a read of the journal, oldest first.
type JournalPage struct {
	Entries []JournalEntry `json:"entries"`
}

// JournalReport is what a check of the journal found.
type JournalReport struct {
	OK        bool     `json:"ok"` // nothing was found that is still so
	Entries   int      `json:"entries"`
	Runs      int      `json:"runs"`
	Keys      int      `json:"keys"`
	LastSeq   int64    `json:"last_seq"`
	Damage    []string `json:"damage,omitempty"`
	Unfit     []string `json:"unfit,omitempty"`
	Dirty     []string `json:"dirty,omitempty"`
	Repaired  int      `json:"repaired"`
	Reindexed bool     `json:"reindexed,omitempty"`
}

// Shutdown asks the daemon to end, or to replace its supervisor.
type Shutdown struct {
	Replace bool   `json:"replace,omitempty"` // commands live on
	Exe     string `json:"exe,omitempty"`     // with replace: the new binary; "" = the same path
	// Report ends all work before the answer, which tells what became of it.
	Report      bool   `json:"report,omitempty"`
	GraceMS     *int64 `json:"grace_ms,omitempty"`     // with report; null = each run's own
	RequireIdle bool   `json:"require_idle,omitempty"` // with report: refuse while something runs or is owed
	Reason      string `json:"reason,omitempty"`       // with report
}

// Accepted answers what is done after the answer.
type Accepted struct {
	Accepted   bool          `json:"accepted"`
	Generation int           `json:"generation"` // of the supervisor that answers
	Report     *DaemonReport `json:"report,omitempty"`
}

// DaemonReport says what the end of the daemon ended and what it could not end.
type DaemonReport struct {
	Error        handles.Code      `json:"error,omitempty"` // shutdown_timeout: not all was ended in time
	Ended        []handles.ID      `json:"ended"`
	StillActive  []handles.ID      `json:"still_active"`
	StillRunning []handles.Process `json:"still_running"`
	Owed         int               `json:"owed"` // ends that are delivered after the next start
}

// IndexEntry says when bytes of a stream came, at chunk precision, or that they
// were not kept.
type IndexEntry struct {
	Source  string `json:"source"` // stdout, stderr
	From    int64  `json:"from"`
	To      int64  `json:"to"`
	MonoNS  int64  `json:"mono_ns"` // CLOCK_MONOTONIC of the first of them
	WallNS  int64  `json:"wall_ns"` // the same moment, ns since 1970
	Omitted bool   `json:"omitted,omitempty"`
}

// Index answers a read of the index, in the order in which bytes came.
type Index struct {
	Entries []IndexEntry `json:"entries"`
}

// Headers and trailers of an output answer, whose body is the bytes of one
// stream. With stop=gap the body ends at the first range that was not kept, and
// the next byte there is has the offset Next.
const (
	HeaderFrom     = "Procsup-From"    // offset of the first byte
	HeaderTotal    = "Procsup-Total"   // bytes written when the answer began
	HeaderHandle   = "Procsup-Handle"  // the whole id
	TrailerNext    = "Procsup-Next"    // offset to go on at
	TrailerOmitted = "Procsup-Omitted" // 100-200,300-400: left out, To not in it
)

// An OutputQuery says which bytes of one stream are wanted.
type OutputQuery struct {
	Source string // stdout, stderr; "" = stdout
	From   int64  // negative: so many bytes before the present end
	Limit  int64  // 0 = all
	Follow bool   // go on until the stream ends
}

// An OutputPart tells what an output answer began with.
type OutputPart struct {
	HandleID handles.ID
	From     int64
	Total    int64
}
