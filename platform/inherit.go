package platform

import "syscall"

// Inherited is the signal state that this process was started with, before
// Go's runtime changed it for its own use.
type Inherited struct {
	Known   bool   // false: it cannot be told, see Doctor
	Mask    uint64 // blocked signals, bit n−1 for signal n
	Ignored []syscall.Signal
}
