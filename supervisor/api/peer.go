package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"

	"procsup/handles"
	"procsup/platform"
)

type peerKey struct{}

// A peer is who connected, as the kernel said when it did.
type peer struct {
	cred platform.Cred
	err  error
	conn *typedConn // nil: not of Listener
}

// ConnContext is http.Server's ConnContext: it notes who is at the other end.
// Without it every request is refused.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	p := peer{err: errors.New("not a unix socket")}
	if sc, ok := c.(syscall.Conn); ok {
		raw, err := sc.SyscallConn()
		if err == nil {
			p.cred, err = platform.PeerCred(raw)
		}
		p.err = err
	}
	p.conn, _ = c.(*typedConn)
	return context.WithValue(ctx, peerKey{}, p)
}

// admit lets our own user and root in, nobody else.
func admit(r *http.Request) *failure {
	p, ok := r.Context().Value(peerKey{}).(peer)
	if !ok {
		p.err = errors.New("the server does not say who connects")
	}
	if p.conn != nil {
		p.conn.handled.Store(true)
	}
	if p.err != nil {
		return forbidden("who connects is unknown: %v", p.err)
	}
	if uid := p.cred.UID; uid != 0 && uid != uint32(os.Geteuid()) {
		return forbidden("this daemon serves uid %d and root, not uid %d", os.Geteuid(), uid)
	}
	return nil
}

func forbidden(format string, args ...any) *failure {
	return &failure{e: handles.Error{Code: handles.CodeForbidden, Message: fmt.Sprintf(format, args...), Hint: "each user runs a daemon of their own"}}
}

// CheckUser refuses to serve as the overflow uid, which stands for every user
// that a user namespace does not map: any of them would pass for us.
func CheckUser() error {
	b, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return nil // no user namespaces here
	}
	over, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || over != os.Geteuid() {
		return nil
	}
	return &handles.Error{
		Code:    handles.CodeForbidden,
		Message: fmt.Sprintf("uid %d is the overflow uid: every unmapped user would pass for it", over),
		Hint:    "run the daemon as another user",
	}
}
