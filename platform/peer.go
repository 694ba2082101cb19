package platform

// A Cred is who is at the other end of a unix socket, as it was when that end
// called connect(2) or listen(2).
type Cred struct {
	PID      int // 0 when the process is in a pid namespace that we cannot see
	UID, GID uint32
}
