package wire

import "procsup/handles"

// PathWaitReady waits for a run to be ready.
const PathWaitReady = "/v1/handles/{h}/wait-ready"

// Statuses of a wait for readiness; Exited and TimedOut are the others.
const Ready = "ready"

// ReadyTimeoutMS is how long a run may take to become ready unless it is said
// otherwise, as systemd has it.
const ReadyTimeoutMS = 90_000

// ReadyWaited answers a wait for readiness.
type ReadyWaited struct {
	Status string          `json:"status"` // ready, exited, timed_out
	Record *handles.Record `json:"record"`
}
