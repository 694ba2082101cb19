//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// oneTaken compares what a reader was given when it asked for the end of one
// run that had ended before.
func (w *world) oneTaken(rt *rapid.T, r *modelRun, reader string, got *wire.Waited) {
	rt.Helper()
	w.same(rt, r, got.Record)
	switch {
	case !r.owed() || !w.m.free(r.batch) && w.m.batches[r.batch].reader != reader:
		if got.Batch != "" {
			rt.Fatalf("%s (delivery %s, batch %q) was given to %s in %s", r.id, r.delivery, r.batch, reader, got.Batch)
		}
		return
	case got.Batch == "", !w.m.free(r.batch) && got.Batch != r.batch, w.m.free(r.batch) && w.m.batches[got.Batch] != nil && !w.killing():
		rt.Fatalf("%s (batch %q) was given to %s in %q", r.id, r.batch, reader, got.Batch)
	case got.Redelivered != r.told && !w.killing():
		rt.Fatalf("%s was given to %s with redelivered=%v, want %v", r.id, reader, got.Redelivered, r.told)
	}
	if got.Batch != r.batch {
		w.m.taken([]*modelRun{r}, got.Batch, reader)
	}
	r.told = true
}

func (w *world) waitNow(rt *rapid.T) {
	r := w.one(rt, anyRun)
	reader := drawReader(rt)
	w.waitsNow(rt, r, reader, w.h.as(reader, r.req.Session))
}

func (w *world) waitsNow(rt *rapid.T, r *modelRun, reader string, as taker) {
	rt.Helper()
	got, err := as.WaitTake(context.Background(), string(r.id), -1)
	if !agree(rt, "wait", err) {
		return
	}
	status := wire.WaitError
	switch {
	case r.live():
		status = wire.WaitPending
	case r.status == handles.Completed:
		status = wire.WaitOK
	}
	if got.Status != status {
		rt.Fatalf("wait for %s: %s, want %s", r.id, got.Status, status)
	}
	w.oneTaken(rt, r, reader, got)
}

func (w *world) take(rt *rapid.T) {
	session, reader := drawSession(rt), drawReader(rt)
	w.takes(rt, session, reader, w.h.as(reader, session))
}

func (w *world) takes(rt *rapid.T, session, reader string, as taker) {
	rt.Helper()
	most := rapid.IntRange(0, 2).Draw(rt, "most")
	b, err := as.Take(context.Background(), wire.Take{Max: most})
	if w.m.sessions[session] == nil {
		agree(rt, "take", err, handles.CodeNotFound)
		return
	}
	if !agree(rt, "take", err) {
		return
	}
	batch, runs := w.m.next(session, reader, most)
	var got []handles.ID
	again := false
	for _, c := range b.Completions {
		got = append(got, c.HandleID)
	}
	if want := idsOf(runs); !slices.Equal(got, want) || b.Count != len(want) || batch != "" && b.Batch != batch {
		rt.Fatalf("%s took %s %v from %s, want %q %v", reader, b.Batch, got, session, batch, want)
	}
	for i, r := range runs {
		c := b.Completions[i]
		w.same(rt, r, c.Result)
		if c.Redelivered != r.told && !w.killing() {
			rt.Fatalf("%s took %s with redelivered=%v, want %v", reader, r.id, c.Redelivered, r.told)
		}
		again = again || c.Redelivered
	}
	if b.Redelivered != again {
		rt.Fatalf("batch %s is redelivered=%v, its ends %v", b.Batch, b.Redelivered, again)
	}
	if len(runs) == 0 {
		if b.Event != wire.NothingKey || b.Batch != "" {
			rt.Fatalf("%s took nothing: %+v", reader, b)
		}
		return
	}
	w.m.taken(runs, b.Batch, reader)
}

func (w *world) acknowledge(rt *rapid.T) {
	known := []string{"bat-never"}
	for b := range w.m.batches {
		known = append(known, b)
	}
	slices.Sort(known)
	batch := known[rapid.IntRange(0, len(known)-1).Draw(rt, "batch")]
	session := drawSession(rt)
	if b := w.m.batches[batch]; b != nil && rapid.IntRange(0, 9).Draw(rt, "other session") > 0 {
		session = b.session
	}
	outcome := rapid.SampledFrom([]string{"", "delivered", "returned"}).Draw(rt, "outcome")
	a, err := w.h.as("r1", session).Acknowledge(context.Background(), session, wire.Acknowledge{Batch: batch, Outcome: outcome})
	var want []handles.Code
	b := w.m.batches[batch]
	switch {
	case w.m.sessions[session] == nil, b == nil, b.session != session:
		want = append(want, handles.CodeNotFound)
	case len(w.m.inBatch(session, batch)) == 0 && !b.settled && err != nil: // what was in it was dropped, or somebody else has it
		want = append(want, handles.CodeNotFound)
	}
	if !agree(rt, fmt.Sprintf("acknowledge %s %q in %s", batch, outcome, session), err, want...) {
		return
	}
	n := w.m.settle(session, batch, outcome)
	b.settled = b.settled || n > 0
	if pending := len(w.m.of(session, (*modelRun).owed)); a.Pending != pending || a.Count != n && !w.killing() {
		rt.Fatalf("acknowledged %s in %s: %+v, want %d settled and %d pending", batch, session, a, n, pending)
	}
}

// mortalTakes lets a reader in a process of its own take something.
func (w *world) mortalTakes(rt *rapid.T) {
	name := rapid.SampledFrom([]string{"m0", "m1"}).Draw(rt, "mortal")
	one := rapid.Bool().Draw(rt, "one")
	if w.mortals[name] == nil {
		w.mortals[name] = w.h.mortal(w.t)
	}
	if !one {
		session := drawSession(rt)
		w.takes(rt, session, name, w.mortals[name].as(session))
		return
	}
	r := w.one(rt, func(r *modelRun) bool { return !r.live() })
	w.waitsNow(rt, r, name, w.mortals[name].as(r.req.Session))
}

func (w *world) readerDies(rt *rapid.T) {
	if len(w.mortals) == 0 {
		rt.Skip("none lives")
	}
	name := rapid.SampledFrom([]string{"m0", "m1"}).Draw(rt, "mortal")
	if w.mortals[name] == nil {
		rt.Skip("it does not live")
	}
	w.mortals[name].die()
	delete(w.mortals, name)
	for _, b := range w.m.batches {
		if b.reader == name {
			b.dead = true
		}
	}
}
