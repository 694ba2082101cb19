package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// maxStreamLine bounds one value of a stream: a record with its output.
const maxStreamLine = 16 << 20

// errStop ends a stream from within; it never leaves this package.
var errStop = errors.New("enough")

// follow reads a stream of JSON values, across restarts of the daemon. make is
// asked for each try; each gets one value, its error ends the stream. more says
// what the end of a whole answer means: nil = it is over.
func (c *Client) follow(ctx context.Context, how again, make func() request, each func([]byte) error) error {
	t := tries{c: c, how: how}
	for {
		got := false
		done, err := c.streamOnce(ctx, make(), func(b []byte) error {
			got = true
			return each(b)
		})
		if done {
			if errors.Is(err, errStop) {
				err = nil
			}
			return err
		}
		if got {
			t = tries{c: c, how: how}
		}
		if over, err := t.judge(ctx, err); over {
			return err
		}
		if err := t.pause(ctx); err != nil {
			return t.unknown(err)
		}
	}
}

// streamOnce reads one answer to its end. done is false when it broke off, or
// there was none.
func (c *Client) streamOnce(ctx context.Context, req request, each func([]byte) error) (done bool, err error) {
	k, err := c.take()
	if err != nil {
		return false, &dialError{err}
	}
	release := k.guard(ctx)
	defer k.f.Close() // streams do not share their connection
	defer release()
	p, sent, err := k.send(req)
	if err != nil {
		return false, k.cut(ctx, sent, err)
	}
	if p.status != 200 {
		b, err := io.ReadAll(io.LimitReader(p.body, 1<<20))
		if err != nil {
			return false, k.cut(ctx, true, err)
		}
		return false, refusal(p, b)
	}
	r := bufio.NewReader(p.body)
	for {
		line, err := streamLine(r)
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, k.cut(ctx, true, err)
		}
		if err := each(line); err != nil {
			return true, err
		}
	}
}

// streamLine is the next value: a line of JSON, or the data of a server-sent
// event.
func streamLine(r *bufio.Reader) ([]byte, error) {
	for {
		var line []byte
		for {
			part, err := r.ReadSlice('\n')
			line = append(line, part...)
			if len(line) > maxStreamLine {
				return nil, fmt.Errorf("%w: a line of more than %d bytes", errMalformed, maxStreamLine)
			}
			if err == nil {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				if err == io.EOF && len(line) > 0 {
					err = io.ErrUnexpectedEOF
				}
				return nil, err
			}
		}
		line = bytes.TrimSpace(line)
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			line = bytes.TrimSpace(data)
		}
		if len(line) > 0 && line[0] == '{' {
			return line, nil
		}
	}
}

func decodeLine(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return nil
}

// notices are the kinds that are known here; others are skipped.
var notices = []string{
	wire.NoticeSubscribed, wire.NoticeStarted, wire.NoticeFinished, wire.NoticeReady, wire.NoticeMatched, wire.NoticeLagged, wire.NoticeClosed,
}

// kindOf is the kind of a notice whose other fields may be anything.
func kindOf(b []byte) (string, error) {
	var n struct {
		Kind string `json:"kind"`
	}
	return n.Kind, decodeLine(b, &n)
}

// Notices gives what happens in a session to each, until the session is closed
// or each returns an error; kinds that it does not know are skipped. since goes on after a notice that was seen; 0 = only
// what is new. After a restart of the daemon there is another subscribed notice:
// what came in between may be missing, and the state tells it.
func (c *Client) Notices(ctx context.Context, since int64, each func(wire.Notice) error) error {
	t := c.sessionPath(wire.PathNotices)
	return c.follow(ctx, freely, func() request {
		return request{method: "GET", target: t.with("since", since).String()}
	}, func(b []byte) error {
		var n wire.Notice
		if kind, err := kindOf(b); err != nil || !slices.Contains(notices, kind) {
			return err // of a newer daemon
		}
		if err := decodeLine(b, &n); err != nil {
			return err
		}
		since = max(since, n.Seq)
		if n.Kind == wire.NoticeSubscribed {
			since = n.Seq
		}
		return each(n)
	})
}

// Events gives the events of a run to each, until its end.
func (c *Client) Events(ctx context.Context, ref string, take bool, each func(wire.Event) error) error {
	path, err := c.path(wire.PathEvents, ref)
	if err != nil {
		return err
	}
	return c.follow(ctx, freely, func() request {
		return request{method: "GET", target: path.with("take", take).String()}
	}, func(b []byte) error {
		var e wire.Event
		if err := decodeLine(b, &e); err != nil {
			return err
		}
		return each(e)
	})
}

// Run runs a command as the parent run of its session and returns its record
// when it has ended. started, if not nil, is told once that it runs. When ctx
// ends, so does the command; a restart of the daemon does not end it.
func (c *Client) Run(ctx context.Context, req wire.Start, started func(*wire.Started)) (*handles.Record, error) {
	if req.Idempotency == "" {
		req.Idempotency = NewKey()
	}
	if req.Session == "" {
		req.Session = c.cfg.Session
	}
	if err := speakable(req); err != nil {
		return nil, err
	}
	body := marshal(req)
	var rec *handles.Record
	err := c.follow(ctx, freely, func() request {
		return c.signed(request{method: "POST", target: wire.PathRun, kind: jsonKind, body: body})
	}, func(b []byte) error {
		var l wire.RunLine
		if err := decodeLine(b, &l); err != nil {
			return err
		}
		if l.Started != nil && started != nil {
			started(l.Started)
			started = nil
		}
		if l.Record != nil {
			rec = l.Record
			return errStop
		}
		return nil
	})
	if err == nil && rec == nil {
		err = fmt.Errorf("%w: a run without its end", errMalformed)
	}
	return rec, err
}

// Attach opens a session that ends with this call, or with this process. opened
// is told of it, again after a restart of the daemon. It returns when ctx ends
// or opened returns an error.
func (c *Client) Attach(ctx context.Context, req wire.OpenSession, opened func(*handles.Session) error) error {
	if req.Name == "" {
		req.Name = handles.NewSessionName() // the same one after a restart
	}
	return c.follow(ctx, freely, func() request {
		return c.signed(request{method: "POST", target: wire.PathAttach, kind: jsonKind, body: marshal(req)})
	}, func(b []byte) error {
		var s handles.Session
		if err := decodeLine(b, &s); err != nil {
			return err
		}
		return opened(&s)
	})
}
