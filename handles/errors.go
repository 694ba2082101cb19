package handles

import "strings"

// A Code names what went wrong, the same in every door. Codes are stable; the
// texts beside them are for people.
type Code string

// The codes. Exit codes of the CLI are in brackets.
const (
	CodeInvalid      Code = "invalid"              // a request that can never work (64)
	CodeNotFound     Code = "not_found"            // no such handle (66)
	CodeAmbiguous    Code = "ambiguous"            // a prefix of several handles (66)
	CodeConflict     Code = "conflict"             // (73)
	CodeNameTaken    Code = "name_taken"           // a live handle of the session has it (73)
	CodeKeyConflict  Code = "idempotency_conflict" // the key came with another request before (73)
	CodeAlreadyEnded Code = "ended"                // (73)
	CodeFull         Code = "limit_reached"        // live handles or descriptors (73)
	CodeDraining     Code = "draining"             // the daemon shuts down (73)
	CodeStarting     Code = "starting"             // the daemon is not ready yet (69)
	CodePersistence  Code = "persistence_failed"   // the journal refused the write; nothing was done (73)
	CodeForbidden    Code = "not_authorized"       // (73)
	CodeUnsupported  Code = "unsupported_operation"
	CodeSchemaNewer  Code = "schema_newer"         // the journal is of a newer procsup (73)
	CodeNotOwner     Code = "not_owner"            // the state directory belongs to another user (73)
	CodeLocked       Code = "locked"               // another daemon uses the state directory (73)
	CodeBusy         Code = "busy_session"         // the session has an active parent run (73)
	CodeClosed       Code = "session_closed"       // the session takes no new work (73)
	CodeInboxFull    Code = "inbox_full"           // no place for one more end that would be owed (73)
	CodeScope        Code = "scope_cancelled"      // (73)
	CodeTaken        Code = "events_already_taken" // (73)
	CodeConfig       Code = "config_error"         // a continuation carries nothing but what is owed (64)
	CodeTimeout      Code = "shutdown_timeout"     // something was not ended in time (75)
	CodeOwed         Code = "results_owed"         // a shutdown that wants nothing owed was refused (73)
	CodeUnknown      Code = "outcome_unknown"      // the answer was lost: it may have happened (125)
	CodeInternal     Code = "internal"             // (125)
)

// An Error is what crosses the socket when something failed.
type Error struct {
	Code    Code   `json:"error"`
	Message string `json:"message"`                 // what failed and why
	ID      string `json:"id,omitempty"`            // on which handle or path
	Hint    string `json:"hint,omitempty"`          // what to do
	Active  ID     `json:"active_run_id,omitempty"` // busy_session: the parent run
}

func (e *Error) Error() string {
	s := e.Message
	if s == "" {
		s = strings.ReplaceAll(string(e.Code), "_", " ")
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Is makes errors.Is(err, ErrNotFound) true for every error of that code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Code == e.Code
}

// Sentinels to compare with errors.Is, through any wrap or join.
var (
	ErrInvalid        = &Error{Code: CodeInvalid}
	ErrNotFound       = &Error{Code: CodeNotFound}
	ErrConflict       = &Error{Code: CodeConflict}
	ErrNameTaken      = &Error{Code: CodeNameTaken}
	ErrKeyConflict    = &Error{Code: CodeKeyConflict}
	ErrEnded          = &Error{Code: CodeAlreadyEnded}
	ErrFull           = &Error{Code: CodeFull}
	ErrDraining       = &Error{Code: CodeDraining}
	ErrStarting       = &Error{Code: CodeStarting}
	ErrPersistence    = &Error{Code: CodePersistence}
	ErrSchemaNewer    = &Error{Code: CodeSchemaNewer}
	ErrNotOwner       = &Error{Code: CodeNotOwner}
	ErrLocked         = &Error{Code: CodeLocked}
	ErrBusy           = &Error{Code: CodeBusy}
	ErrClosed         = &Error{Code: CodeClosed}
	ErrInboxFull      = &Error{Code: CodeInboxFull}
	ErrScope          = &Error{Code: CodeScope}
	ErrOwed           = &Error{Code: CodeOwed}
	ErrForbidden      = &Error{Code: CodeForbidden}
	ErrOutcomeUnknown = &Error{Code: CodeUnknown}
)
