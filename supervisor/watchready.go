package supervisor

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/ready"
	"procsup/supervisor/wire"
)

const (
	// maxLine bounds what is kept of a line on a descriptor, and of a match.
	maxLine = 4096
	maxText = 256
	// doomTime is how long a command whose output ended before its condition may
	// take to end itself: it is dying more often than not.
	doomTime = 200 * time.Millisecond
	// sayTime bounds how often the texts of STATUS are journaled.
	sayTime = time.Second
)

// A hearing is one thing that happened about one run's readiness.
type hearing struct {
	cond   int           // a condition that holds, or with never cannot hold any more
	text   string        //
	never  error         //
	data   *said         // a datagram; nil: a condition
	closed chan struct{} // closed when it is done with, durably
}

// startReady begins to wait for the conditions; the run's group is there.
func (r *run) startReady() {
	q := r.ready
	if q == nil {
		return
	}
	var ctx context.Context
	ctx, q.stop = context.WithCancel(r.s.life)
	q.done = make(chan struct{})
	r.s.owners.Add(1)
	go r.watchReady(ctx) // ends by endReady, or with this process
}

// endReady ends it before the run is settled.
func (r *run) endReady() {
	if q := r.ready; q != nil && q.done != nil {
		q.stop()
		<-q.done
	}
}

// watchReady is the only one that changes a run's readiness.
func (r *run) watchReady(ctx context.Context) {
	q := r.ready
	defer r.s.owners.Done()
	defer close(q.done)
	defer q.closeFiles()
	w := &readyWatch{r: r, q: q, heard: make(chan hearing), flush: idleTimer(), limit: idleTimer(), dog: idleTimer()}
	q.doomed = idleTimer()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	look, stopLooking := context.WithCancel(ctx)
	defer stopLooking()
	w.begin(look, ctx, &tasks)
	ending := r.marked
	if leftover(r.spec) == pgroup.Wait {
		ending = nil // the run lasts as long as its tree
	}
	for {
		select {
		case <-ctx.Done():
			stopLooking()
			tasks.Wait()
			if q.notify != nil && r.s.life.Err() == nil {
				w.listenLast()
			}
			return
		case <-ending:
			ending = nil
			stopLooking() // nobody is left that could make them hold
			w.limit.Stop()
		case h := <-w.heard:
			w.take(h)
		case <-w.limit.C:
			r.abort(r.tooLate())
		case <-q.doomed.C:
			r.abort("it can never be ready")
		case <-w.dog.C:
			w.bite("no WATCHDOG=1 for " + w.every.String())
		case <-w.flush.C:
			w.sayAll()
		}
	}
}

// idleTimer is a timer that does not run yet.
func idleTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// A readyWatch is the state of watchReady.
type readyWatch struct {
	r     *run
	q     *readying
	heard chan hearing
	limit *time.Timer   // the start is aborted
	dog   *time.Timer   // the watchdog
	every time.Duration // of it; 0 = none
	flush *time.Timer   // what was said is journaled
	wrote time.Time     // when that was done last
}

// begin sets the alarms and starts a goroutine for what is waited for.
func (w *readyWatch) begin(look, life context.Context, tasks *sync.WaitGroup) {
	r, q := w.r, w.q
	r.s.mu.Lock()
	v := r.rec.Readiness
	r.s.mu.Unlock()
	if v.State == handles.ReadyWaiting && !v.Until.IsZero() {
		w.limit.Reset(time.Until(v.Until))
	}
	if w.every = millis(v.WatchdogMS); !v.FirstAt.IsZero() {
		w.pat()
	}
	fd := 0
	for i, c := range q.conds {
		var pipe *os.File
		if c.Kind == ready.FD {
			if fd < len(q.fds) {
				pipe = q.fds[fd]
			}
			fd++
		}
		if !v.Conditions[i].HeldAt.IsZero() {
			if pipe != nil {
				tasks.Go(func() { drain(life, pipe) })
			}
			continue
		}
		tasks.Go(func() { // ends when it holds, or with a context
			text, err := r.look(look, i, c, pipe)
			if look.Err() == nil || err == nil {
				w.tell(life, hearing{cond: i, text: text, never: err})
			}
			if pipe != nil {
				drain(life, pipe)
			}
		})
	}
	if q.notify != nil {
		tasks.Go(func() { w.listen(life) })
	}
}

// tell hands something to the owner and waits until it is done with.
func (w *readyWatch) tell(ctx context.Context, h hearing) bool {
	h.closed = make(chan struct{})
	select {
	case w.heard <- h:
	case <-ctx.Done():
		return false
	}
	<-h.closed
	return true
}

// look waits for one condition. nil with a text says that it holds; an error that
// it never will, if the context has not ended.
func (r *run) look(ctx context.Context, i int, c ready.Cond, pipe *os.File) (text string, err error) {
	switch c.Kind {
	case ready.Output:
		if r.log == nil {
			return "", errors.New("its output is not captured any more")
		}
		found, err := r.log.Match(ctx, capture.Query{Pattern: c.Pattern})
		if errors.Is(err, capture.ErrEndedBeforeMatch) {
			err = errors.New("its output ended without it")
		}
		r.ready.tried(i, err)
		return short(found.Text), err
	case ready.FD:
		if pipe == nil {
			return "", errors.New("the descriptor died with the keeper")
		}
		defer context.AfterFunc(ctx, func() { _ = pipe.SetReadDeadline(time.Unix(1, 0)) })()
		line, ok, err := platform.AwaitLine(pipe, maxLine)
		if err == nil && !ok {
			err = errors.New("it was closed without a line")
		}
		r.ready.tried(i, err)
		return short(string(line)), err
	case ready.Notify: // listen sees to it
		if r.ready.notify == nil {
			return "", errors.New("the socket died with the keeper")
		}
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	place := ready.Place{Dir: r.spec.Dir, Env: r.spec.Env, Subreaper: r.s.sub, Files: r.s.files}
	return "", place.Await(ctx, c, false, func(err error) { r.ready.tried(i, err) })
}

func short(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}

// drain takes what is written after the line, so that its writer neither waits
// nor gets SIGPIPE.
func drain(ctx context.Context, pipe *os.File) {
	defer context.AfterFunc(ctx, func() { _ = pipe.SetReadDeadline(time.Unix(1, 0)) })()
	if ctx.Err() == nil {
		_ = pipe.SetReadDeadline(time.Time{})
	}
	_, _ = io.Copy(io.Discard, pipe)
}

// take is what the owner does about something heard.
func (w *readyWatch) take(h hearing) {
	defer close(h.closed)
	switch {
	case h.data != nil:
		w.hear(h.data)
	case h.never != nil:
		if !w.r.isReady() {
			w.q.doomed.Reset(doomTime)
		}
	default:
		w.met(h.cond, h.text)
	}
}

// met marks a condition as held; with the last one the run is ready.
func (w *readyWatch) met(i int, text string) {
	w.change(func(v *handles.Readiness) string {
		if !v.Conditions[i].HeldAt.IsZero() {
			return ""
		}
		v.Conditions[i].HeldAt, v.Conditions[i].Text, v.Conditions[i].Why = time.Now().UTC(), text, ""
		if v.State == handles.ReadyWaiting && allHeld(v) && w.r.stop == nil {
			v.State = handles.ReadyNow
		}
		return "condition"
	})
}

func allHeld(v *handles.Readiness) bool {
	return !slices.ContainsFunc(v.Conditions, func(c handles.Condition) bool { return c.HeldAt.IsZero() })
}

// change makes the run's next readiness, by f, and journals it under the kind
// that f gives; "" changes nothing. A change of the level is told once it is
// durable.
func (w *readyWatch) change(f func(*handles.Readiness) (kind string)) {
	r, s := w.r, w.r.s
	s.mu.Lock()
	was, v := r.rec.Readiness, r.rec.Readiness.Clone()
	kind := f(v)
	if kind == "" {
		s.mu.Unlock()
		return
	}
	now := v.State == handles.ReadyNow
	turned := now != (was.State == handles.ReadyNow)
	switch {
	case turned && now:
		kind, r.rec.ReadyAt = "ready", time.Now().UTC()
		if v.FirstAt.IsZero() {
			v.FirstAt = r.rec.ReadyAt
		}
	case turned:
		kind, r.rec.ReadyAt, w.q.level = "not_ready", time.Time{}, false
	}
	r.rec.Readiness = v
	commit := s.write(r, kind, nil)
	r.ring()
	s.mu.Unlock()
	w.wrote = time.Now()
	w.flush.Stop()
	if err := commit.Wait(); err != nil {
		s.log.Error("record readiness", "id", r.id, "err", err)
	}
	if turned {
		w.turned(now)
	}
}

// turned tells of a change of the level.
func (w *readyWatch) turned(now bool) {
	r, s := w.r, w.r.s
	notice, event := wire.NoticeNotReady, wire.EventNotReady
	if now {
		notice, event = wire.NoticeIsReady, wire.EventReady
		w.limit.Stop()
		w.q.doomed.Stop()
		w.pat()
	}
	s.hook(event, r)
	s.mu.Lock()
	w.q.level = now
	r.ring()
	s.notifyRun(r.sess, notice, &r.rec)
	status := r.rec.Status
	s.mu.Unlock()
	r.event(wire.Event{Kind: event, Status: status})
}

// sayAll journals what was only noted.
func (w *readyWatch) sayAll() {
	w.change(func(*handles.Readiness) string { return "said" })
}

// isReady reports whether the run has been ready.
func (r *run) isReady() bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return !r.rec.Readiness.FirstAt.IsZero()
}
