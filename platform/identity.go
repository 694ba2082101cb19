// Package platform is what procsup knows about the operating system: process
// identity and endings, the process tree, control groups, terminals, features
// and paths. It holds facts and thin calls; it decides nothing.
package platform

import "errors"

// ErrGone says that a process, or every process of a group, does not exist
// any more (ESRCH).
var ErrGone = errors.New("no such process")

// An Identity names one process for ever: a PID alone is reused, a PID with
// its start time and boot is not. The zero Identity names none.
type Identity struct {
	BootID     string `json:"boot_id"` // /proc/sys/kernel/random/boot_id; empty where the OS has none
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"` // clock ticks since boot, proc(5) stat field 22
}

// Liveness is what is known of a process now. It is never guessed: what cannot
// be read is Unverifiable.
type Liveness string

// The three answers to "does it live?".
const (
	Live         Liveness = "live"
	Exited       Liveness = "exited" // gone, a zombie, or the number has another owner now
	Unverifiable Liveness = "unverifiable"
)
