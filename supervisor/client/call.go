package client

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"procsup/handles"
)

// An again says what is done when the answer to a call was lost.
type again int

const (
	freely again = iota // it changes nothing, or nothing more: asked again
	once                // it has an idempotency key: asked again once
	never               // the caller is told that the outcome is unknown
)

// Between two tries of a daemon that does not answer.
const (
	firstPause = time.Millisecond
	lastPause  = 8 * time.Millisecond
)

// An answer that is broken off sooner is no sign of life: the request itself may
// be what the daemon dies of.
const brief = 20 * time.Millisecond

// do calls until there is an answer. While the daemon restarts it tries again,
// for as long as patience lasts after the last sign of life. make is asked for
// each try, so that a timeout in the request can shrink.
func (c *Client) do(ctx context.Context, how again, make func() request, out any) error {
	t := tries{c: c, how: how}
	for {
		err := c.attempt(ctx, make(), out)
		if err == nil {
			return nil
		}
		if done, err := t.judge(ctx, err); done {
			return err
		}
		if err := t.pause(ctx); err != nil {
			return t.unknown(err)
		}
	}
}

// tries is the state of one call over its tries.
type tries struct {
	c     *Client
	how   again
	lost  error     // what became of tries that may have taken effect
	fresh int       // how many of them had a connection of their own
	asked time.Time // when the last try began; zero: it is the first
	since time.Time // of the last sign of life; zero: no trouble yet
	wait  time.Duration
}

// judge says whether a call is over with an error, and with which.
func (t *tries) judge(ctx context.Context, err error) (done bool, _ error) {
	var dial *dialError
	var lost *lostError
	switch {
	case errors.As(err, &lost):
		t.lost = errors.Join(t.lost, lost)
		if !lost.kept {
			t.fresh++
		}
		if ctx.Err() != nil || t.how == never || t.how == once && t.fresh > 1 {
			return true, t.unknown(err)
		}
		if t.since.IsZero() || time.Since(t.asked) > brief {
			t.since, t.wait = time.Now(), 0
		}
	case errors.As(err, &dial):
		if ctx.Err() != nil {
			return true, t.unknown(context.Cause(ctx))
		}
		first := t.lost == nil && t.since.IsZero()
		if !passing(dial.err) || first && !t.c.expected(dial.err) {
			return true, t.unknown(t.c.unreachable(dial.err))
		}
	case errors.Is(err, handles.ErrStarting):
	case t.lost != nil && !settles(err):
		return true, t.unknown(err)
	default:
		return true, err
	}
	if t.since.IsZero() {
		t.since = time.Now()
	}
	if time.Since(t.since) < t.c.cfg.Patience {
		return false, nil
	}
	switch {
	case dial != nil:
		err = t.c.unreachable(dial.err)
	case lost != nil:
		err = fmt.Errorf("the daemon has broken off each answer for %v: %w", t.c.cfg.Patience, lost.err)
	}
	return true, t.unknown(err)
}

// passing reports whether a failure to connect may pass: nobody listens, the
// backlog is full, or the kept connection was closed by the other end.
func passing(err error) bool {
	return absent(err) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// settles reports whether the daemon's answer to a second try says that the
// first had no effect: it looks for the key before it refuses for such a reason.
func settles(err error) bool {
	var e *handles.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case handles.CodeInvalid, handles.CodeKeyConflict, handles.CodeNameTaken, handles.CodeFull, handles.CodeForbidden:
		return true
	}
	return false
}

// unknown is the error of a call that may have taken effect.
func (t *tries) unknown(err error) error {
	if t.lost == nil || t.how == freely {
		var lost *lostError
		if errors.As(err, &lost) { // nothing was changed: the bare cause
			return lost.err
		}
		return err
	}
	return &unknownError{
		e:     &handles.Error{Code: handles.CodeUnknown, Message: "whether it happened is unknown: " + err.Error(), Hint: "reread"},
		cause: err,
	}
}

// An unknownError is handles.ErrOutcomeUnknown and its cause.
type unknownError struct {
	e     *handles.Error
	cause error
}

func (e *unknownError) Error() string   { return e.e.Error() }
func (e *unknownError) Unwrap() []error { return []error{e.e, e.cause} }

// pause waits a little longer each time.
func (t *tries) pause(ctx context.Context) error {
	t.wait = min(max(2*t.wait, firstPause), lastPause)
	timer := time.NewTimer(t.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		t.asked = time.Now()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
