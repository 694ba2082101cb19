//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// A world is a model and the house that it is compared with.
type world struct {
	t       *testing.T
	m       *model
	h       house
	dir     string
	keys    int
	fifos   map[string]*os.File // by path; a command reads its exit code from one
	waits   map[*modelRun][]*waiting
	fronts  map[*modelRun]*inFront
	mortals map[string]mortal
	killer  chan error // gives the answer once the successor is there; nil: nobody is being killed
	fresh   bool       // nothing was done yet while the killer is at work
	kills   int
}

// A waiting is a reader that waits for an end to take it.
type waiting struct {
	reader string
	answer chan waited
}

type waited struct {
	*wire.Waited
	err error
}

// An inFront is the caller of a parent run.
type inFront struct {
	leave context.CancelFunc
	end   chan *handles.Record
	err   error // before end is given
}

func newWorld(t *testing.T, h house, dir string) *world {
	return &world{
		t: t, m: newModel(), h: h, dir: dir, fifos: map[string]*os.File{}, waits: map[*modelRun][]*waiting{},
		fronts: map[*modelRun]*inFront{}, mortals: map[string]mortal{},
	}
}

// leave ends what the world has started, but for the house.
func (w *world) leave() {
	if w.killer != nil {
		<-w.killer
	}
	ctx := context.Background()
	for _, f := range w.fronts {
		f.leave()
	}
	for _, name := range w.m.names() {
		_, _ = w.h.as("r0", name).ClearSession(ctx, name, wire.EndSession{})
	}
	for _, f := range w.fronts {
		<-f.end
	}
	for _, list := range w.waits {
		for _, x := range list {
			<-x.answer
		}
	}
	for _, d := range w.mortals {
		d.die()
	}
	for _, f := range w.fifos {
		f.Close()
	}
}

// calm waits until nobody is being killed, for what a caller could not ask for
// again.
func (w *world) calm(rt *rapid.T) {
	if w.killer == nil {
		return
	}
	if err := <-w.killer; err != nil {
		rt.Fatal(err)
	}
	w.killer = nil
}

func (w *world) killing() bool { return w.killer != nil }

func codeOf(err error) handles.Code {
	var e *handles.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// agree reports whether something was done; it must be refused for one of these
// reasons, if there are any.
func agree(rt *rapid.T, what string, err error, want ...handles.Code) bool {
	rt.Helper()
	if err == nil && len(want) == 0 {
		return true
	}
	if err == nil || !slices.Contains(want, codeOf(err)) {
		rt.Fatalf("%s: got %v (%s), want %v", what, err, codeOf(err), want)
	}
	return false
}

// request draws a start. Its command ends with the code that it is told.
func (w *world) request(rt *rapid.T) wire.Start {
	w.keys++
	req := wire.Start{
		Session: drawSession(rt), Env: []string{"PATH=/usr/bin:/bin"}, Idempotency: fmt.Sprintf("k%d", w.keys),
		Lease: rapid.SampledFrom([]string{"", "", "awaited", "service"}).Draw(rt, "lease"),
		Scope: rapid.SampledFrom([]string{"", "", "s1", "s2", "s3"}).Draw(rt, "scope"),
		Name:  rapid.SampledFrom([]string{"", "", "n1", "n2"}).Draw(rt, "name"),
	}
	if rapid.IntRange(0, 5).Draw(rt, "fails") == 0 {
		req.Command = []string{"/no/such/command"}
		return req
	}
	path := filepath.Join(w.dir, req.Idempotency)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		rt.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) // so that neither end waits for the other
	if err != nil {
		rt.Fatal(err)
	}
	w.fifos[path] = f
	req.Command = []string{"/bin/sh", "-c", `read x <"$0"; exit "$x"`, path}
	return req
}

func fails(req wire.Start) bool { return len(req.Command) == 1 }

func (w *world) fifo(r *modelRun) *os.File { return w.fifos[r.req.Command[len(r.req.Command)-1]] }

func drawSession(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "a", "b", "default"}).Draw(rt, "session")
}

func drawReader(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"r0", "r1"}).Draw(rt, "reader")
}

// one draws a run that matches, or skips the step.
func (w *world) one(rt *rapid.T, match func(*modelRun) bool) *modelRun {
	var list []*modelRun
	for _, r := range w.m.runs {
		if match(r) {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		rt.Skip("no such run")
	}
	return list[rapid.IntRange(0, len(list)-1).Draw(rt, "run")]
}

func anyRun(*modelRun) bool { return true }

// patience bounds what must come by itself.
const patience = time.Minute

// collect takes the answers of those who waited for a run that has ended, of
// whom one is given its end if it is owed. more are answers that came otherwise.
func (w *world) collect(rt *rapid.T, r *modelRun, more ...waited) {
	rt.Helper()
	readers := make([]string, len(more))
	for i := range more {
		readers[i] = r.waiting[i] // by convention of the step that asked
	}
	r.waiting = nil
	for _, x := range w.waits[r] {
		select {
		case a := <-x.answer:
			more, readers = append(more, a), append(readers, x.reader)
		case <-time.After(patience):
			rt.Fatalf("%s has ended, and %s still waits for it", r.id, x.reader)
		}
	}
	delete(w.waits, r)
	w.frontEnds(rt, r)
	first := map[string]int{} // by reader, how often it was not given again
	for i, a := range more {
		if a.err != nil {
			rt.Fatalf("wait for %s: %v", r.id, a.err)
		}
		w.same(rt, r, a.Record)
		if a.Batch == "" {
			continue
		}
		if _, asked := first[readers[i]]; !asked { // it may have asked twice at once
			first[readers[i]] = 0
			w.m.taken([]*modelRun{r}, a.Batch, readers[i])
		}
		if !a.Redelivered {
			first[readers[i]]++
		}
	}
	if r.owed() && len(more) > 0 && len(first) != 1 || !r.owed() && len(first) != 0 {
		rt.Fatalf("%s (%s, delivery %s) was given to %v of %d who waited", r.id, r.status, r.delivery, first, len(more))
	}
	for reader, n := range first {
		if n != 1 && w.kills == 0 {
			rt.Fatalf("%s was given to %s for the first time %d times", r.id, reader, n)
		}
	}
}

// frontEnds takes the answer of the caller of a parent run.
func (w *world) frontEnds(rt *rapid.T, r *modelRun) {
	rt.Helper()
	f := w.fronts[r]
	if f == nil {
		return
	}
	delete(w.fronts, r)
	select {
	case rec := <-f.end:
		if f.err == nil {
			w.same(rt, r, rec)
		} else if !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, handles.ErrStarting) && !errors.Is(f.err, journal.ErrClosed) {
			rt.Fatalf("the caller of %s got %v", r.id, f.err)
		}
	case <-time.After(patience):
		rt.Fatalf("%s has ended, and its caller was not told", r.id)
	}
	f.leave()
}

// collectAll is collect of all that have ended.
func (w *world) collectAll(rt *rapid.T) {
	rt.Helper()
	for _, r := range w.m.runs {
		if !r.live() && (w.waits[r] != nil || w.fronts[r] != nil) {
			w.collect(rt, r)
		}
	}
}

// same compares a record with what must hold.
func (w *world) same(rt *rapid.T, r *modelRun, rec *handles.Record) {
	rt.Helper()
	var bad []string
	differ := func(what string, got, want any) {
		if got != want {
			bad = append(bad, fmt.Sprintf("%s is %v, want %v", what, got, want))
		}
	}
	kind := "handle"
	if r.front {
		kind = "run"
	}
	differ("id", rec.HandleID, r.id)
	differ("kind", rec.Kind, kind)
	differ("status", rec.Status, r.status)
	differ("cause", rec.Cause, r.cause)
	differ("session", rec.SessionID, r.req.Session)
	differ("name", rec.Name, r.req.Name)
	differ("scope", rec.Scope, r.req.Scope)
	if r.status == handles.Completed || r.status == handles.Failed && !fails(r.req) {
		if rec.ExitCode == nil {
			differ("exit code", nil, r.code)
		} else {
			differ("exit code", *rec.ExitCode, r.code)
		}
	}
	if len(bad) > 0 {
		rt.Fatalf("%s: %s", r.id, strings.Join(bad, "; "))
	}
}
