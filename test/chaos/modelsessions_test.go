//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"procsup/handles"
	"procsup/supervisor/wire"
)

func (w *world) openSession(rt *rapid.T) {
	name := drawSession(rt)
	got, err := w.h.as("r0", name).OpenSession(context.Background(), wire.OpenSession{Name: name})
	if !agree(rt, "open", err) {
		return
	}
	s := w.m.sessions[name]
	switch {
	case s == nil:
		s = &modelSession{generation: 1}
	case s.closed:
		s = &modelSession{generation: s.generation + 1}
	}
	w.m.sessions[name] = s
	if got.Generation != s.generation || got.Status != handles.SessionOpen || got.Token == "" {
		rt.Fatalf("open %s: %+v, want generation %d", name, got, s.generation)
	}
}

type endSession = func(context.Context, string, wire.EndSession) (*wire.SessionReport, error)

// endSession closes, clears, resets, shuts down or deletes one.
func (w *world) endSession(rt *rapid.T) {
	name := drawSession(rt)
	kind := rapid.SampledFrom([]string{"close", "clear", "reset", "shutdown", "delete"}).Draw(rt, "kind")
	req := wire.EndSession{RequireIdle: rapid.IntRange(0, 3).Draw(rt, "idle") == 0}
	as := w.h.as("r0", name)
	do := map[string]endSession{"close": as.CloseSession, "clear": as.ClearSession, "reset": as.ResetSession, "shutdown": as.ShutdownSession, "delete": as.DeleteSession}[kind]
	s := w.m.sessions[name]
	var want []handles.Code
	if s == nil {
		want = append(want, handles.CodeNotFound)
	} else if kind == "shutdown" && w.m.parent(name) != nil {
		want = append(want, handles.CodeBusy)
	} else if req.RequireIdle && len(w.m.of(name, func(r *modelRun) bool { return r.live() || r.owed() })) > 0 {
		want = append(want, handles.CodeOwed)
	}
	rep, err := do(context.Background(), name, req)
	if s != nil && w.killing() && kind == "delete" && codeOf(err) == handles.CodeNotFound {
		err, rep = nil, nil // its answer was lost
	}
	if !agree(rt, kind+" "+name, err, want...) {
		return
	}
	cause := handles.CauseSession
	if kind == "shutdown" {
		cause = handles.CauseShutdown
	}
	ended, dropped := w.m.end(name, cause)
	w.after(rt, name, kind)
	if !w.killing() && (!slices.Equal(rep.Ended, ended) || !slices.Equal(rep.Dropped, dropped) || len(rep.StillActive)+len(rep.StillRunning) > 0 || rep.Error != "") {
		rt.Fatalf("%s %s: %+v, want ended %v, dropped %v", kind, name, rep, ended, dropped)
	}
	w.collectAll(rt)
}

// after is what a session is afterwards.
func (w *world) after(rt *rapid.T, name, kind string) {
	s := w.m.sessions[name]
	switch {
	case kind == "reset" && !s.closed:
		s.generation++
		s.scopes = nil
		if w.killing() { // a repeat makes one more
			w.calm(rt)
			if got, err := w.h.as("r0", name).ShowSession(context.Background(), name); err == nil && got.Generation == s.generation+1 {
				s.generation++
			}
		}
	case kind == "delete" && name != "default":
		delete(w.m.sessions, name)
	case (kind == "close" || kind == "shutdown") && name != "default":
		s.closed = true
	}
}

func (w *world) openScope(rt *rapid.T) {
	session := drawSession(rt)
	name := rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(rt, "scope")
	parent := map[string]string{"s1": "", "s2": "s1", "s3": "s2"}[name]
	if rapid.IntRange(0, 3).Draw(rt, "top") == 0 {
		parent = ""
	}
	_, err := w.h.as("r0", session).OpenScope(context.Background(), name, parent)
	s := w.m.sessions[session]
	if s == nil {
		s = &modelSession{generation: 1}
	}
	var want []handles.Code
	switch sc := s.scope(name); {
	case s.closed:
		want = append(want, handles.CodeClosed)
	case sc != nil && sc.cancelled:
		want = append(want, handles.CodeScope)
	case sc != nil && sc.parent != parent:
		want = append(want, handles.CodeConflict)
	case sc == nil:
		want = s.inScope(parent)
	}
	if !agree(rt, fmt.Sprintf("open scope %s below %q in %s", name, parent, session), err, want...) {
		return
	}
	w.m.sessions[session] = s
	if s.scope(name) == nil {
		s.scopes = append(s.scopes, modelScope{name: name, parent: parent})
	}
}

func (w *world) cancelScope(rt *rapid.T) {
	session := drawSession(rt)
	name := rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(rt, "scope")
	rep, err := w.h.as("r0", session).CancelScope(context.Background(), name, wire.EndSession{})
	var want []handles.Code
	if s := w.m.sessions[session]; s == nil || s.scope(name) == nil {
		want = append(want, handles.CodeNotFound)
	}
	if !agree(rt, "cancel scope", err, want...) {
		return
	}
	scopes, ended := w.m.cancelScope(session, name)
	if !w.killing() && (!slices.Equal(rep.Cancelled, scopes) || !slices.Equal(rep.Ended, ended) || len(rep.Still) > 0) {
		rt.Fatalf("cancel scope %s of %s: %+v, want scopes %v, ended %v", name, session, rep, scopes, ended)
	}
	w.collectAll(rt)
}

// check compares all that can be seen with the model.
func (w *world) check(rt *rapid.T) {
	if w.fresh {
		w.fresh = false
		return // the next step is made while the supervisor is killed
	}
	w.calm(rt)
	for _, name := range []string{"default", "a", "b"} {
		w.checkSession(rt, name)
	}
	for _, r := range w.m.runs[max(0, len(w.m.runs)-40):] {
		rec, err := w.h.as("r0", r.req.Session).Show(context.Background(), string(r.id))
		if err != nil {
			rt.Fatal(err)
		}
		w.same(rt, r, rec)
		if rec.Delivery != r.delivery || r.owed() && rec.Batch != r.batch {
			rt.Fatalf("%s: delivery %s in %q, want %s in %q", r.id, rec.Delivery, rec.Batch, r.delivery, r.batch)
		}
	}
}

func (w *world) checkSession(rt *rapid.T, name string) {
	rt.Helper()
	ctx, as := context.Background(), w.h.as("r0", name)
	got, err := as.ShowSession(ctx, name)
	s := w.m.sessions[name]
	if s == nil {
		agree(rt, "show session "+name, err, handles.CodeNotFound)
		return
	}
	if !agree(rt, "show session "+name, err) {
		return
	}
	live, owed := w.m.of(name, (*modelRun).live), w.m.of(name, (*modelRun).owed)
	want := handles.Session{Name: name, Status: handles.SessionOpen, Generation: s.generation, Live: len(live), Pending: len(owed)}
	idle := wire.Idle{Handles: len(live), Idle: len(live) == 0, Pending: len(owed)}
	if s.closed {
		want.Status = handles.SessionClosed
	}
	if p := w.m.parent(name); p != nil {
		want.Active = p.id
		idle.Runs, idle.Handles = 1, len(live)-1
	}
	for _, sc := range s.scopes {
		want.Scopes = append(want.Scopes, handles.Scope{Name: sc.name, Parent: sc.parent})
		i := len(want.Scopes) - 1
		if i < len(got.Scopes) && (got.Scopes[i].Cancelled != 0) == sc.cancelled {
			want.Scopes[i].Cancelled = got.Scopes[i].Cancelled
		}
	}
	empty := cmpopts.EquateEmpty()
	if d := cmp.Diff(&want, got, empty, cmpopts.IgnoreFields(handles.Session{}, "CreatedAt", "ClosedAt", "Why", "Seq", "Token")); d != "" {
		rt.Fatalf("session %s: -want +got\n%s", name, d)
	}
	if got, err := as.Idle(ctx, 0, nil); err != nil || !cmp.Equal(&idle, got, empty) {
		rt.Fatalf("idle: %v -want +got\n%s", err, cmp.Diff(&idle, got, empty))
	}
	p, err := as.Pending(ctx, true)
	if err != nil {
		rt.Fatal(err)
	}
	in := map[handles.ID]string{}
	for _, c := range p.Items {
		in[c.HandleID] = c.Batch
	}
	should := map[handles.ID]string{}
	for _, r := range owed {
		should[r.id] = r.batch
	}
	if d := cmp.Diff(should, in); d != "" || p.Count != len(owed) || len(p.Items) != len(owed) {
		rt.Fatalf("%d owed to %s: -want +got\n%s", p.Count, name, d)
	}
	if got, err := as.Deliveries(ctx, 0); err != nil || !cmp.Equal(w.m.settled[name], got.Deliveries, empty, cmpopts.IgnoreFields(wire.Delivery{}, "At")) {
		rt.Fatalf("deliveries of %s: %v -want +got\n%s", name, err, cmp.Diff(w.m.settled[name], got.Deliveries, empty))
	}
}
