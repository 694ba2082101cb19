//go:build unix

package platform

import (
	"sync"

	"golang.org/x/sys/unix"
)

var umask struct {
	mu   sync.RWMutex
	once sync.Once
	now  int
}

// WithUmask runs start, which starts a program, with a umask. It is a property
// of the whole process (umask(2)): starts with the usual one run side by side,
// others take turns. Files of our own are made with explicit modes meanwhile.
func WithUmask(mask int, start func()) {
	umask.once.Do(func() {
		umask.now = unix.Umask(0o077)
		unix.Umask(umask.now)
	})
	if mask == umask.now {
		umask.mu.RLock()
		defer umask.mu.RUnlock()
		start()
		return
	}
	umask.mu.Lock()
	defer umask.mu.Unlock()
	unix.Umask(mask)
	defer unix.Umask(umask.now)
	start()
}

// Umask is the umask of this process. umask(2) can only read it by changing it:
// call it while nothing else makes files.
func Umask() (int, bool) {
	now := unix.Umask(0o077)
	unix.Umask(now)
	return now, true
}
