//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"procsup/handles"
	"procsup/supervisor/wire"
)

func (w *world) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":       w.check,
		"start":  w.start,
		"start2": w.start,
		"front":  w.front,
		"repeat": w.repeat,
		"burst":  w.burst,
		"end":    w.end, "end2": w.end,
		"cancel":       w.cancel,
		"restart":      w.again,
		"caller goes":  w.callerGoes,
		"wait":         w.waitNow,
		"await":        w.await,
		"take":         w.take,
		"acknowledge":  w.acknowledge,
		"mortal":       w.mortalTakes,
		"reader dies":  w.readerDies,
		"open":         w.openSession,
		"end session":  w.endSession,
		"scope":        w.openScope,
		"cancel scope": w.cancelScope,
		"reopen":       w.reopen,
	}
}

func (w *world) start(rt *rapid.T) {
	req := w.request(rt)
	if !w.killing() && rapid.Bool().Draw(rt, "waits in front") {
		w.startAwaited(rt, req)
		return
	}
	w.started(rt, req)
}

// started starts it.
func (w *world) started(rt *rapid.T, req wire.Start) *modelRun {
	rt.Helper()
	want := w.m.refusals(req)
	a, err := w.asked("r0", req)
	if !agree(rt, "start", err, want...) {
		return nil
	}
	r := w.m.admit(a.HandleID, req)
	switch {
	case w.killing() && (a.Status == handles.Interrupted || a.Status == handles.Lost): // it was never executed, or nobody knows
		r.status = a.Status
	case fails(req):
		r.status = handles.Failed
	}
	if a.Status != r.status {
		rt.Fatalf("start: %s (%s), want %s", a.Status, a.Error, r.status)
	}
	return r
}

// asked asks for a start as long as the answer is lost.
func (w *world) asked(reader string, req wire.Start) (*wire.Started, error) {
	a, err := w.h.as(reader, req.Session).Start(context.Background(), req)
	for w.killing() && errors.Is(err, handles.ErrOutcomeUnknown) {
		a, err = w.h.as(reader, req.Session).Start(context.Background(), req)
	}
	return a, err
}

// startAwaited is a start that stays in front: for a moment, or until its end,
// which comes at once; then it is taken.
func (w *world) startAwaited(rt *rapid.T, req wire.Start) {
	rt.Helper()
	ms := int64(0)
	if fails(req) {
		ms = patience.Milliseconds()
	}
	req.BackgroundMS = &ms
	reader := drawReader(rt)
	want := w.m.refusals(req)
	a, err := w.h.as(reader, req.Session).Start(context.Background(), req)
	if !agree(rt, "start", err, want...) {
		return
	}
	r := w.m.admit(a.HandleID, req)
	if fails(req) {
		r.status = handles.Failed
	}
	if a.Record == nil || r.owed() != (a.Batch != "") || a.Redelivered {
		rt.Fatalf("start in front: %+v", a)
	}
	w.same(rt, r, a.Record)
	if a.Batch != "" {
		w.m.taken([]*modelRun{r}, a.Batch, reader)
	}
}

// front starts a parent run.
func (w *world) front(rt *rapid.T) {
	w.calm(rt)
	req := w.request(rt)
	req.Foreground = true
	if rapid.Bool().Draw(rt, "released at once") {
		req.BackgroundMS = new(int64)
	}
	want := w.m.refusals(req)
	ctx, leave := context.WithCancel(context.Background())
	f := &inFront{leave: leave, end: make(chan *handles.Record, 1)}
	told := make(chan *wire.Started, 1)
	as := w.h.as("r0", req.Session)
	go func() { // ends with the run, or when its caller leaves
		rec, err := as.Run(ctx, req, func(a *wire.Started) { told <- a })
		f.err = err
		f.end <- rec
	}()
	select {
	case a := <-told:
		if len(want) > 0 {
			rt.Fatalf("front: got %s, want %v", a.HandleID, want)
		}
		r := w.m.admit(a.HandleID, req)
		w.fronts[r] = f
		if fails(req) {
			r.status = handles.Failed
			w.frontEnds(rt, r)
		} else if req.BackgroundMS != nil {
			r.released()
			w.frontEnds(rt, r)
		}
	case <-f.end:
		leave()
		if agree(rt, "front", f.err, want...) {
			rt.Fatal("front: it has ended, and was not started")
		}
	}
}

// repeat asks for a start again, as it was or changed, under its key.
func (w *world) repeat(rt *rapid.T) {
	r := w.one(rt, func(r *modelRun) bool {
		return r.req.Idempotency != "" && !r.req.Foreground && r.req.BackgroundMS == nil
	})
	req := r.req
	if rapid.Bool().Draw(rt, "changed") {
		req.Tag = "test"
		_, err := w.asked("r1", req)
		agree(rt, "repeat changed", err, handles.CodeKeyConflict)
		return
	}
	a, err := w.asked("r1", req)
	if agree(rt, "repeat", err) && (a.HandleID != r.id || !a.Replayed) {
		rt.Fatalf("repeat: got %s replayed=%v, want %s again", a.HandleID, a.Replayed, r.id)
	}
}

// burst starts what fails at once until the inbox is full.
func (w *world) burst(rt *rapid.T) {
	session := drawSession(rt)
	for range rapid.SampledFrom([]int{1, 3, 3, 3, 3, 130}).Draw(rt, "burst") {
		w.keys++
		req := wire.Start{Command: []string{"/no/such/command"}, Session: session, Lease: "awaited", Idempotency: fmt.Sprintf("k%d", w.keys)}
		if w.started(rt, req) == nil {
			return
		}
	}
}

func (w *world) end(rt *rapid.T) {
	r := w.one(rt, (*modelRun).live)
	code := rapid.SampledFrom([]int{0, 3}).Draw(rt, "code")
	if _, err := fmt.Fprintln(w.fifo(r), code); err != nil {
		rt.Fatal(err)
	}
	r.ended(code)
	if _, err := w.h.as("r0", r.req.Session).Wait(context.Background(), string(r.id), patience); err != nil {
		rt.Fatal(err)
	}
	w.collect(rt, r)
}

func (w *world) cancel(rt *rapid.T) {
	r := w.one(rt, anyRun)
	reader, take := drawReader(rt), rapid.Bool().Draw(rt, "take")
	was := r.live()
	r.killed(handles.CauseCancelled)
	c, err := w.h.as(reader, r.req.Session).Cancel(context.Background(), string(r.id), wire.Cancel{Take: take})
	if !agree(rt, "cancel", err) {
		return
	}
	if c.Cancelled != was || c.Stopping {
		rt.Fatalf("cancel of %s, which lived: %v: cancelled=%v stopping=%v", r.id, was, c.Cancelled, c.Stopping)
	}
	a := waited{Waited: &wire.Waited{Batch: c.Batch, Redelivered: c.Redelivered, Record: c.Record}}
	switch {
	case was && take:
		r.waiting = []string{reader}
		w.collect(rt, r, a)
	case was:
		w.collect(rt, r)
	case take:
		w.oneTaken(rt, r, reader, a.Waited)
	}
	w.same(rt, r, c.Record)
}

// again restarts a run.
func (w *world) again(rt *rapid.T) {
	w.calm(rt)
	r := w.one(rt, anyRun)
	for _, other := range w.m.runs {
		if other != r && other.live() && w.fifo(other) != nil && w.fifo(other) == w.fifo(r) {
			rt.Skip("another one reads from the same file")
		}
	}
	req := r.req
	req.Idempotency, req.Foreground = "", false
	early := w.m.noRestart(r, req)
	a, err := w.h.as("r0", r.req.Session).Restart(context.Background(), string(r.id), wire.Cancel{})
	if r.live() && len(early) > 0 { // refused before it is ended
		agree(rt, "restart", err, early...)
		return
	}
	r.killed(handles.CauseCancelled)
	want := w.m.refusals(req)
	w.collect(rt, r)
	if !agree(rt, "restart", err, want...) {
		return
	}
	next := w.m.admit(a.HandleID, req)
	if fails(req) {
		next.status = handles.Failed
	}
}

func (w *world) callerGoes(rt *rapid.T) {
	w.calm(rt)
	r := w.one(rt, func(r *modelRun) bool { return r.live() && r.front })
	w.fronts[r].leave()
	r.killed(handles.CauseOwnerGone)
	if _, err := w.h.as("r0", r.req.Session).Wait(context.Background(), string(r.id), patience); err != nil {
		rt.Fatal(err)
	}
	w.collect(rt, r)
}

// await makes a reader wait for an end while other things happen.
func (w *world) await(rt *rapid.T) {
	r := w.one(rt, func(r *modelRun) bool { return r.live() && !r.front })
	x := &waiting{reader: drawReader(rt), answer: make(chan waited, 1)}
	for _, other := range w.waits[r] {
		if other.reader == x.reader {
			rt.Skip("it waits already")
		}
	}
	w.waits[r] = append(w.waits[r], x)
	as := w.h.as(x.reader, r.req.Session)
	go func() { // ends with the run
		a, err := as.WaitTake(context.Background(), string(r.id), 0)
		x.answer <- waited{a, err}
	}()
}

// reopen starts the supervisor anew, in good order.
func (w *world) reopen(rt *rapid.T) {
	w.calm(rt)
	if w.h.ends() {
		if len(w.waits) > 0 {
			rt.Skip("who waits would not know")
		}
		for _, r := range w.m.runs {
			r.killed(handles.CauseShutdown)
		}
	}
	w.h.restart(w.t)
	w.collectAll(rt)
}

// kill sends SIGKILL to the supervisor in a moment, while the next step is made.
func (w *world) kill(rt *rapid.T) {
	w.calm(rt)
	moment := time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "µs")) * time.Microsecond
	w.killer, w.fresh = make(chan error, 1), true
	w.kills++
	go func(done chan<- error) { // ends when the successor answers; calm waits for it
		<-time.After(moment) // the moment is what is random
		done <- w.h.kill(w.t)
	}(w.killer)
}
