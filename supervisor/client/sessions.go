package client

import (
	"context"
	"strings"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// sessionPath fills the client's session into a path.
func (c *Client) sessionPath(pattern string) target { return pathOf(pattern, c.cfg.Session) }

func pathOf(pattern, session string) target {
	if session == "" {
		session = "default"
	}
	return target(strings.Replace(pattern, "{s}", escape(session), 1))
}

// signed adds what a request says of its caller.
func (c *Client) signed(r request) request {
	r.token, r.reader = c.cfg.Token, c.reader
	return r
}

// OpenSession opens a session, or gives the open one of that name.
func (c *Client) OpenSession(ctx context.Context, req wire.OpenSession) (*handles.Session, error) {
	if req.Name == "" {
		req.Name = handles.NewSessionName() // the same one if the answer is lost
	}
	return call[handles.Session](ctx, c, freely, c.signed(request{method: "POST", target: wire.PathSessions, kind: jsonKind, body: marshal(req)}))
}

// Sessions lists sessions by name: the open ones, or all.
func (c *Client) Sessions(ctx context.Context, all bool) (*wire.SessionList, error) {
	return call[wire.SessionList](ctx, c, freely, request{method: "GET", target: target(wire.PathSessions).with("all", all).String()})
}

// ShowSession is one session.
func (c *Client) ShowSession(ctx context.Context, name string) (*handles.Session, error) {
	return call[handles.Session](ctx, c, freely, request{method: "GET", target: pathOf(wire.PathSession, name).String()})
}

func (c *Client) endSession(ctx context.Context, method, pattern, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return call[wire.SessionReport](ctx, c, freely, c.signed(request{method: method, target: pathOf(pattern, name).String(), kind: jsonKind, body: marshal(req)}))
}

// CloseSession ends all work of a session and closes it; what is owed is dropped.
func (c *Client) CloseSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return c.endSession(ctx, "POST", wire.PathSessionClose, name, req)
}

// ClearSession ends all work of a session; what is owed is dropped.
func (c *Client) ClearSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return c.endSession(ctx, "POST", wire.PathSessionClear, name, req)
}

// ResetSession clears a session and begins its next generation.
func (c *Client) ResetSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return c.endSession(ctx, "POST", wire.PathSessionReset, name, req)
}

// DeleteSession closes a session and forgets it.
func (c *Client) DeleteSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return c.endSession(ctx, "DELETE", wire.PathSession, name, req)
}

// ShutdownSession closes a session within its grace and a moment, and reports
// what is left. It is refused while a parent run is active.
func (c *Client) ShutdownSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return c.endSession(ctx, "POST", wire.PathSessionShutdown, name, req)
}

// OpenScope opens a scope of the client's session.
func (c *Client) OpenScope(ctx context.Context, name, parent string) (*handles.Scope, error) {
	return post[handles.Scope](ctx, c, freely, c.sessionPath(wire.PathScopes).String(), handles.Scope{Name: name, Parent: parent})
}

// Scopes lists the scopes of the client's session.
func (c *Client) Scopes(ctx context.Context) (*wire.Scopes, error) {
	return call[wire.Scopes](ctx, c, freely, request{method: "GET", target: c.sessionPath(wire.PathScopes).String()})
}

// CancelScope ends every run of a scope and of those below it.
func (c *Client) CancelScope(ctx context.Context, name string, req wire.EndSession) (*wire.ScopeReport, error) {
	t := strings.Replace(c.sessionPath(wire.PathScopeCancel).String(), "{g}", escape(name), 1)
	return post[wire.ScopeReport](ctx, c, freely, t, req)
}

// Pending counts what is owed to the client's session.
func (c *Client) Pending(ctx context.Context, items bool) (*wire.Pending, error) {
	return call[wire.Pending](ctx, c, freely, request{method: "GET", target: c.sessionPath(wire.PathPending).with("items", items).String()})
}

// Take takes what is owed to the client's session as one batch. If the answer
// is lost it is asked for again, and is the same batch, marked.
func (c *Client) Take(ctx context.Context, req wire.Take) (*wire.Batch, error) {
	left := countdown(time.Duration(req.WaitMS) * time.Millisecond)
	b := &wire.Batch{}
	err := c.do(ctx, freely, func() request {
		r := req
		r.WaitMS = left()
		return c.signed(request{method: "POST", target: c.sessionPath(wire.PathTake).String(), kind: jsonKind, body: marshal(r)})
	}, b)
	return b, err
}

// Acknowledge settles a batch: delivered, or returned to the inbox of its
// session ("" = the client's).
func (c *Client) Acknowledge(ctx context.Context, session string, req wire.Acknowledge) (*wire.Acknowledged, error) {
	if session == "" {
		session = c.cfg.Session
	}
	return post[wire.Acknowledged](ctx, c, freely, pathOf(wire.PathAcknowledge, session).String(), req)
}

// Deliveries are batches that were acknowledged, newest first; limit 0 = all.
func (c *Client) Deliveries(ctx context.Context, limit int) (*wire.Deliveries, error) {
	return call[wire.Deliveries](ctx, c, freely, request{method: "GET", target: c.sessionPath(wire.PathDeliveries).with("limit", limit).String()})
}

// Idle says whether nothing of the client's session runs. With a wait it
// answers when that is so, or the time is over; a negative wait has no end.
func (c *Client) Idle(ctx context.Context, wait time.Duration, expect []handles.ID) (*wire.Idle, error) {
	left := countdown(wait)
	ids := make([]string, len(expect))
	for i, id := range expect {
		ids[i] = string(id)
	}
	t := c.sessionPath(wire.PathIdle).with("expect", strings.Join(ids, ","))
	v := &wire.Idle{}
	err := c.do(ctx, freely, func() request {
		return request{method: "GET", target: t.with("wait_ms", left()).String()}
	}, v)
	return v, err
}

// WaitTake is Wait that takes the end out of the inbox of the session that it is
// owed to: a Batch in the answer is to be acknowledged.
func (c *Client) WaitTake(ctx context.Context, ref string, timeout time.Duration) (*wire.Waited, error) {
	path, err := c.path(wire.PathWait, ref)
	if err != nil {
		return nil, err
	}
	left := countdown(timeout)
	w := &wire.Waited{}
	err = c.do(ctx, freely, func() request {
		return c.signed(request{method: "GET", target: path.with("timeout_ms", left()).with("take", true).String()})
	}, w)
	return w, err
}
