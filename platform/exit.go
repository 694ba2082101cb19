package platform

import (
	"syscall"
	"time"
)

// An Exit is how a process ended. Code is −1 when Signal ended it, and Signal
// is 0 when it exited by itself: exit 143 and death by TERM stay different.
type Exit struct {
	Code       int
	Signal     syscall.Signal
	CoreDumped bool
}

// A Usage is what a process and its reaped children used, from wait4(2).
type Usage struct {
	User, System time.Duration
	MaxRSS       int64 // bytes, high-water mark; exec inherits the spawner's own
}
