package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"procsup/handles"
)

// A conn is one connection. It carries one call at a time.
type conn struct {
	f    *os.File
	r    *bufio.Reader
	kept bool // from an earlier call: the daemon may just be closing it
}

func newConn(f *os.File) *conn { return &conn{f: f, r: bufio.NewReader(f)} }

// long ago: a deadline that ends whatever waits for the connection.
var past = time.Unix(1, 0)

// guard ends what the connection does when ctx ends. The caller calls the
// result when it is done; false = the connection is spoilt.
func (k *conn) guard(ctx context.Context) (ungard func() bool) {
	return context.AfterFunc(ctx, func() { _ = k.f.SetDeadline(past) })
}

// send writes a request and reads the head of the answer. sent is false when
// nothing can have reached the daemon.
func (k *conn) send(req request) (p *response, sent bool, err error) {
	n, werr := k.f.Write(req.bytes())
	if werr != nil && n == 0 {
		return nil, false, werr
	}
	// A daemon may refuse before it has read all: then writing fails, and the
	// answer says why.
	p, err = readResponse(k.r)
	if err != nil && werr != nil {
		err = werr
	}
	if werr != nil && p != nil {
		p.close = true
	}
	return p, true, err
}

// A lostError is an answer that did not come whole: what was asked for may have
// happened.
type lostError struct {
	err  error
	kept bool // on a connection from an earlier call
}

func (e *lostError) Error() string { return "the answer was lost: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// A dialError says that nothing was asked, because nobody was reached.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// attempt makes one call on one connection and decodes the answer into out, a
// pointer, or nil. Errors are *dialError, *lostError, or the daemon's own.
func (c *Client) attempt(ctx context.Context, req request, out any) error {
	k, err := c.take()
	if err != nil {
		return &dialError{err}
	}
	release := k.guard(ctx)
	p, sent, err := k.send(req)
	if err != nil {
		release()
		k.f.Close()
		return k.cut(ctx, sent, err)
	}
	b, err := io.ReadAll(io.LimitReader(p.body, maxJSON))
	clean := release() && err == nil && !p.close && len(b) < maxJSON
	if clean {
		c.keep(k)
	} else {
		k.f.Close()
	}
	if err != nil {
		return k.cut(ctx, true, err)
	}
	if p.status/100 != 2 {
		return refusal(p, b)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return &lostError{err: fmt.Errorf("%w: %w", errMalformed, err)}
	}
	return nil
}

// cut tells a caller that gave up from a connection that broke.
func (k *conn) cut(ctx context.Context, sent bool, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if !sent {
		return &dialError{err}
	}
	return &lostError{err, k.kept}
}

// refusal is the error that the daemon answered.
func refusal(p *response, body []byte) error {
	e := &handles.Error{}
	if err := json.Unmarshal(body, e); err == nil && e.Code != "" {
		return e
	}
	e = &handles.Error{Code: handles.CodeInternal, Message: fmt.Sprintf("the daemon answered %d %s: %.200s", p.status, p.reason, body)}
	if p.status/100 == 4 {
		e.Code = handles.CodeInvalid
	}
	return e
}
