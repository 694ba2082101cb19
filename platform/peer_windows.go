package platform

import (
	"errors"
	"fmt"
	"syscall"
)

// PeerCred returns errors.ErrUnsupported: unix sockets of Windows do not say
// who connected.
func PeerCred(conn syscall.RawConn) (Cred, error) {
	return Cred{}, fmt.Errorf("peer credentials: %w", errors.ErrUnsupported)
}
