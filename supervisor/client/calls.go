package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/wire"
)

const jsonKind = "application/json"

// Hello says who answers.
func (c *Client) Hello(ctx context.Context) (*wire.Hello, error) {
	return call[wire.Hello](ctx, c, freely, request{method: "GET", target: wire.PathHello})
}

// Start starts a command. It puts a random idempotency key on a request that
// has none: a start whose answer was lost is asked for once more with the same
// key. If that is lost too the error is handles.ErrOutcomeUnknown.
func (c *Client) Start(ctx context.Context, req wire.Start) (*wire.Started, error) {
	if err := speakable(req); err != nil {
		return nil, err
	}
	if req.Idempotency == "" {
		req.Idempotency = NewKey()
	}
	if req.Session == "" {
		req.Session = c.cfg.Session
	}
	return call[wire.Started](ctx, c, once, c.signed(request{method: "POST", target: wire.PathHandles, kind: jsonKind, body: marshal(req)}))
}

// speakable refuses what JSON would change on the way.
func speakable(req wire.Start) error {
	for i, a := range req.Command {
		if !utf8.ValidString(a) {
			return &handles.Error{Code: handles.CodeInvalid, ID: "command", Message: fmt.Sprintf("argument %d is not UTF-8, which this API cannot carry", i), Hint: "use procsup run"}
		}
	}
	for _, kv := range req.Env {
		if !utf8.ValidString(kv) {
			name, _, _ := strings.Cut(kv, "=")
			return &handles.Error{Code: handles.CodeInvalid, ID: "env", Message: fmt.Sprintf("the value of %.80q is not UTF-8, which this API cannot carry", name), Hint: "unset it, or use --env-mode minimal"}
		}
	}
	for i, c := range req.Ready {
		if !utf8.ValidString(c) {
			return &handles.Error{Code: handles.CodeInvalid, ID: "ready", Message: fmt.Sprintf("condition %d is not UTF-8, which this API cannot carry", i)}
		}
	}
	if !utf8.ValidString(req.Dir) || !utf8.ValidString(req.Stdin) {
		return &handles.Error{Code: handles.CodeInvalid, ID: "dir", Message: "the path of the directory or of stdin is not UTF-8, which this API cannot carry"}
	}
	return nil
}

// NewKey makes an idempotency key: random, for one request and its repeats.
func NewKey() string {
	var b [16]byte
	platform.Random(b[:])
	return fmt.Sprintf("%x", b)
}

// Wait waits for the end of a run, across restarts of the daemon. A negative
// timeout does not wait at all, 0 waits for ever.
func (c *Client) Wait(ctx context.Context, ref string, timeout time.Duration) (*wire.Waited, error) {
	path, err := c.path(wire.PathWait, ref)
	if err != nil {
		return nil, err
	}
	left := countdown(timeout)
	w := &wire.Waited{}
	err = c.do(ctx, freely, func() request {
		return request{method: "GET", target: path.with("timeout_ms", left()).String()}
	}, w)
	return w, err
}

// WaitReady waits for a run to be ready, across restarts of the daemon. A negative
// timeout does not wait at all, 0 waits for ever.
func (c *Client) WaitReady(ctx context.Context, ref string, timeout time.Duration) (*wire.ReadyWaited, error) {
	path, err := c.path(wire.PathWaitReady, ref)
	if err != nil {
		return nil, err
	}
	left := countdown(timeout)
	w := &wire.ReadyWaited{}
	err = c.do(ctx, freely, func() request {
		return request{method: "GET", target: path.with("timeout_ms", left()).String()}
	}, w)
	return w, err
}

// WaitOutput waits for a pattern, across restarts of the daemon.
func (c *Client) WaitOutput(ctx context.Context, ref string, req wire.WaitOutput) (*wire.OutputWaited, error) {
	path, err := c.path(wire.PathWaitOutput, ref)
	if err != nil {
		return nil, err
	}
	left := countdown(time.Duration(req.TimeoutMS) * time.Millisecond)
	w := &wire.OutputWaited{}
	err = c.do(ctx, freely, func() request {
		r := req
		r.TimeoutMS = left()
		return request{method: "POST", target: path.String(), kind: jsonKind, body: marshal(r)}
	}, w)
	return w, err
}

// countdown gives what is left of a timeout in milliseconds: at least one, as 0
// means for ever.
func countdown(timeout time.Duration) func() int64 {
	end := time.Now().Add(timeout)
	return func() int64 {
		if timeout <= 0 {
			return int64(max(timeout, -1))
		}
		return max(1, time.Until(end).Round(time.Millisecond).Milliseconds())
	}
}

// Cancel ends a run. It may be called again: a run that has ended is left
// alone. It puts a random idempotency key on a request that has none: one whose
// answer was lost is asked for again, and still says that it ended the run.
func (c *Client) Cancel(ctx context.Context, ref string, req wire.Cancel) (*wire.Cancelled, error) {
	path, err := c.path(wire.PathCancel, ref)
	if err != nil {
		return nil, err
	}
	if req.Idempotency == "" {
		req.Idempotency = NewKey()
	}
	left := countdown(time.Duration(req.WaitResultMS) * time.Millisecond)
	k := &wire.Cancelled{}
	err = c.do(ctx, freely, func() request {
		r := req
		if r.WaitResultMS > 0 {
			r.WaitResultMS = left()
		}
		return c.signed(request{method: "POST", target: path.String(), kind: jsonKind, body: marshal(r)})
	}, k)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Restart ends a run and starts the same command as a new one.
func (c *Client) Restart(ctx context.Context, ref string, req wire.Cancel) (*wire.Started, error) {
	path, err := c.path(wire.PathRestart, ref)
	if err != nil {
		return nil, err
	}
	return post[wire.Started](ctx, c, never, path.String(), req)
}

// Signal sends a signal.
func (c *Client) Signal(ctx context.Context, ref string, req wire.Signal) (*handles.Record, error) {
	path, err := c.path(wire.PathSignal, ref)
	if err != nil {
		return nil, err
	}
	return post[handles.Record](ctx, c, never, path.String(), req)
}

// Send writes to a run's stdin, at most 16 MiB at once, and closes it then if
// asked. It blocks as long as the command does not read.
func (c *Client) Send(ctx context.Context, ref string, data []byte, closeAfter bool) (*handles.Record, error) {
	path, err := c.path(wire.PathStdin, ref)
	if err != nil {
		return nil, err
	}
	if closeAfter {
		path = path.with("close", "true")
	}
	return call[handles.Record](ctx, c, never, request{method: "POST", target: path.String(), kind: "application/octet-stream", body: data})
}

// Show returns the record of a handle.
func (c *Client) Show(ctx context.Context, ref string) (*handles.Record, error) {
	path, err := c.path(wire.PathHandle, ref)
	if err != nil {
		return nil, err
	}
	return call[handles.Record](ctx, c, freely, request{method: "GET", target: path.String()})
}

// A Filter chooses records of a list. The zero Filter takes all.
type Filter struct {
	Session string
	Live    bool
	Kind    string // command, test, build
	Limit   int    // 0 = no limit
}

// List returns records, newest first.
func (c *Client) List(ctx context.Context, f Filter) (*wire.List, error) {
	t := target(wire.PathHandles).with("session", f.Session).with("live", f.Live).with("kind", f.Kind).with("limit", f.Limit)
	return call[wire.List](ctx, c, freely, request{method: "GET", target: t.String()})
}

// Journal returns rows after a number, of one run or with "" of all.
func (c *Client) Journal(ctx context.Context, after int64, ref string, limit int) ([]wire.JournalEntry, error) {
	t := target(wire.PathJournal).with("after", after).with("run", ref).with("limit", limit)
	p, err := call[wire.JournalPage](ctx, c, freely, request{method: "GET", target: t.String()})
	if err != nil {
		return nil, err
	}
	return p.Entries, nil
}

// CheckJournal verifies the journal.
func (c *Client) CheckJournal(ctx context.Context) (*wire.JournalReport, error) {
	return call[wire.JournalReport](ctx, c, freely, request{method: "POST", target: wire.PathJournalCheck})
}

// Index says when which bytes of a run came.
func (c *Client) Index(ctx context.Context, ref string) ([]wire.IndexEntry, error) {
	path, err := c.path(wire.PathIndex, ref)
	if err != nil {
		return nil, err
	}
	x, err := call[wire.Index](ctx, c, freely, request{method: "GET", target: path.String()})
	if err != nil {
		return nil, err
	}
	return x.Entries, nil
}

func call[T any](ctx context.Context, c *Client, how again, req request) (*T, error) {
	v := new(T)
	if err := c.do(ctx, how, func() request { return req }, v); err != nil {
		return nil, err
	}
	return v, nil
}

func post[T any](ctx context.Context, c *Client, how again, target string, body any) (*T, error) {
	return call[T](ctx, c, how, request{method: "POST", target: target, kind: jsonKind, body: marshal(body)})
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("marshal request: " + err.Error()) // plain data
	}
	return b
}

// A target is a path and its query, escaped.
type target string

func (t target) String() string { return string(t) }

// with adds a query parameter unless it has its zero value.
func (t target) with(name string, value any) target {
	v := fmt.Sprint(value)
	if v == "" || v == "0" || v == "false" {
		return t
	}
	sep := "?"
	if strings.Contains(string(t), "?") {
		sep = "&"
	}
	return t + target(sep+name+"="+escape(v))
}

// path fills in the handle of a path.
func (c *Client) path(pattern, ref string) (target, error) {
	if ref == "" || ref == "." || ref == ".." || !utf8.ValidString(ref) {
		return "", &handles.Error{Code: handles.CodeNotFound, ID: ref, Message: strconv.Quote(ref) + " is no handle", Hint: "procsup list shows them"}
	}
	return target(strings.Replace(pattern, "{h}", escape(ref), 1)).with("session", c.cfg.Session), nil
}

// escape writes a string so that it can be any part of a target, RFC 3986.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
