package handles

// A Status is the state of a run. It only moves forward.
type Status string

// The statuses of design.md §6.
const (
	Queued      Status = "queued"
	Starting    Status = "starting"
	Running     Status = "running"
	Stopping    Status = "stopping"
	Completed   Status = "completed"   // ended by itself, exit 0
	Failed      Status = "failed"      // ended by itself otherwise, or never started
	Killed      Status = "killed"      // ended by us, see Cause
	Cancelled   Status = "cancelled"   // while queued, never started
	Lost        Status = "lost"        // outcome unknown
	Interrupted Status = "interrupted" // still queued when the daemon went away
)

// A Cause says why a run was ended by us; empty when it was not.
type Cause string

// The causes of design.md §6.
const (
	CauseCancelled Cause = "cancelled"
	CauseDeadline  Cause = "deadline"
	CauseNoOutput  Cause = "no_output"
	CauseOwnerGone Cause = "owner_gone"
	CauseScope     Cause = "scope_cancelled"
	CauseSession   Cause = "session_closed"
	CauseShutdown  Cause = "shutdown"
	CauseAborted   Cause = "start_aborted"
)

// Terminal reports whether a run in this status has ended.
func (s Status) Terminal() bool {
	switch s {
	case Completed, Failed, Killed, Cancelled, Lost, Interrupted:
		return true
	}
	return false
}

// Settle is the status of a run that has ended: by us only if a stop was
// decided before its exit was observed.
func Settle(stoppedByUs bool, code int, signalled bool) Status {
	switch {
	case stoppedByUs:
		return Killed
	case code == 0 && !signalled:
		return Completed
	}
	return Failed
}
