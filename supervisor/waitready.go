package supervisor

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/supervisor/wire"
)

// lastOutput is how much of each stream an aborted start shows.
const lastOutput = 1024

// readyTimeout is how long a run may take to become ready; 0 = as long as it likes.
func readyTimeout(spec wire.Start) time.Duration {
	if spec.ReadyMS == nil {
		return millis(wire.ReadyTimeoutMS)
	}
	return millis(*spec.ReadyMS)
}

// tooLate says that the time to become ready is over.
func (r *run) tooLate() string {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	v := r.rec.Readiness
	return "not ready within " + v.Until.Sub(r.rec.StartedAt).Round(time.Millisecond).String()
}

// abort ends a start that did not become ready. The record names what had not
// held, and why, and has the last output.
func (r *run) abort(what string) {
	var parts []string
	out := r.lastOutput()
	edit := func(rec *handles.Record) {
		v := rec.Readiness.Clone()
		for i, c := range v.Conditions {
			if c.HeldAt.IsZero() {
				v.Conditions[i].Why = r.ready.reason(i)
				parts = append(parts, c.Condition+" ("+v.Conditions[i].Why+")")
			}
		}
		v.State, v.LastOutput = handles.ReadyAborted, out
		rec.Readiness, rec.Error = v, what+": "+strings.Join(parts, ", ")
	}
	r.s.decide(r, decision{kind: "start_abort", cause: handles.CauseAborted, by: "host", reason: what, edit: edit, unready: true})
}

// neverReady shows the last output of a run that ended before it was ready. s.mu
// is held.
func (r *run) neverReady(last *handles.LastOutput) {
	if v := r.rec.Readiness; v != nil && v.FirstAt.IsZero() && v.LastOutput == nil {
		v = v.Clone()
		v.LastOutput = last
		r.rec.Readiness = v
	}
}

// lastOutput is the end of both streams of a run that was to become ready.
func (r *run) lastOutput() *handles.LastOutput {
	if r.log == nil || r.ready == nil {
		return nil
	}
	o := &handles.LastOutput{Stdout: tailOf(r.log, capture.Stdout)}
	if !r.spec.Merge {
		o.Stderr = tailOf(r.log, capture.Stderr)
	}
	return o
}

func tailOf(log *capture.Log, src capture.Source) string {
	v, err := log.Tail(src, lastOutput)
	if err != nil {
		return ""
	}
	text := v.Text
	if v.Base64 != "" {
		b, _ := base64.StdEncoding.DecodeString(v.Base64)
		text = string(b)
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

// WaitReady answers when a run is ready, when it has ended, or when the timeout
// is over, which ends nothing. A negative timeout does not wait at all, 0 waits
// for ever. A run that is being stopped is not ready any more.
func (s *Supervisor) WaitReady(ctx context.Context, ref, session string, timeout time.Duration) (*wire.ReadyWaited, error) {
	r, id, err := s.find(ref, session)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx, max(timeout, 0))
	defer cancel()
	status := wire.Exited
	if r != nil {
		if status, err = r.awaitReady(ctx, timeout >= 0); err != nil {
			return nil, err
		}
	}
	rec, err := s.record(s.live(id), id)
	if err != nil {
		return nil, err
	}
	if rec.Readiness == nil {
		return nil, &handles.Error{Code: handles.CodeConflict, ID: string(id), Message: fmt.Sprintf("%s was started without a condition of readiness", id), Hint: "start it with --ready, or use wait-output"}
	}
	return &wire.ReadyWaited{Status: status, Record: rec}, nil
}

func (r *run) awaitReady(ctx context.Context, wait bool) (string, error) {
	for {
		r.s.mu.Lock()
		is := r.ready == nil || r.ready.level && r.stop == nil && r.phase < observed
		bell := r.bell
		r.s.mu.Unlock()
		select {
		case <-r.over:
			return wire.Exited, nil
		default:
		}
		switch {
		case is:
			return wire.Ready, nil
		case !wait:
			return wire.TimedOut, nil
		}
		select {
		case <-bell:
		case <-r.over:
		case <-r.s.life.Done():
			return "", handles.ErrStarting
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errTimeout) {
				return "", cause
			}
			return wire.TimedOut, nil
		}
	}
}
