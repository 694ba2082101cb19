package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"procsup/handles"
)

// Listener wraps the listener of an http.Server so that requests which net/http
// refuses before any handler sees them (a broken request line, headers that are
// too large, an unknown transfer encoding) are answered with a handles.Error
// too. net/http has no hook for that, so the answer is changed as it is written,
// and only on connections none of whose requests has reached a handler: there
// nothing but net/http itself writes.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &typedConn{Conn: c}, nil
}

// A typedConn is a connection until its first request is handled, and then as
// if it were not there.
type typedConn struct {
	net.Conn
	handled atomic.Bool
}

// SyscallConn lets the kernel be asked who is at the other end.
func (c *typedConn) SyscallConn() (syscall.RawConn, error) {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, syscall.EINVAL
	}
	return sc.SyscallConn()
}

// CloseWrite is what net/http does after an answer to a request that it did not
// read to its end, so that the client sees the answer.
func (c *typedConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}

func (c *typedConn) Write(b []byte) (int, error) {
	if c.handled.Load() {
		return c.Conn.Write(b)
	}
	answer := retyped(b)
	if answer == nil {
		return c.Conn.Write(b)
	}
	if _, err := c.Conn.Write(answer); err != nil {
		return 0, err
	}
	return len(b), nil
}

// retyped is net/http's own refusal with a body of ours, nil for anything else.
func retyped(b []byte) []byte {
	line, _, _ := bytes.Cut(b, []byte("\r\n"))
	text, ok := strings.CutPrefix(string(line), "HTTP/1.1 ")
	if !ok {
		return nil
	}
	number, _, _ := strings.Cut(text, " ")
	status, err := strconv.Atoi(number)
	if err != nil || status < http.StatusBadRequest {
		return nil
	}
	f := &failure{e: handles.Error{Code: handles.CodeInvalid, Message: "the request cannot be read: " + text}}
	switch status {
	case http.StatusRequestHeaderFieldsTooLarge:
		f.e.Message = "the headers of the request are too large"
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusExpectationFailed:
		f.e.Code = handles.CodeUnsupported
		f.e.Message = "the request asks for what is not supported: " + text
	}
	body, err := json.Marshal(&f.e)
	if err != nil {
		return nil // plain data: cannot be
	}
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", text, len(body)+1, body)
}
