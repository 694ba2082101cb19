//go:build !linux

package platform

import (
	"errors"
	"fmt"
	"syscall"
)

// PeerPidfd returns errors.ErrUnsupported: pidfds exist on Linux only.
func PeerPidfd(conn syscall.RawConn) (int, error) {
	return -1, fmt.Errorf("peer's pidfd: %w", errors.ErrUnsupported)
}
