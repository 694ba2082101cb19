package supervisor

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// nobodyAsked is a caller of whom nothing is known, as over a socket from
// another pid namespace.
var nobodyAsked = Caller{}

// reading is a caller that is this process and one of its readers.
func reading(t *testing.T, name string) Caller {
	t.Helper()
	id, err := platform.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return Caller{Process: id, Reader: name}
}

// runs starts a parent run and returns when it runs; its end comes by the
// channel.
func runs(t *testing.T, ctx context.Context, s *Supervisor, req wire.Start) (handles.ID, <-chan *handles.Record) {
	t.Helper()
	started, ended := make(chan handles.ID, 1), make(chan *handles.Record, 1)
	go func() { // ends with the run
		rec, err := s.Run(ctx, req, nobodyAsked, func(a *wire.Started) error { started <- a.HandleID; return nil })
		if err != nil && ctx.Err() == nil {
			t.Errorf("run: %v", err)
			close(started)
		}
		ended <- rec
	}()
	return <-started, ended
}

func pending(t *testing.T, s *Supervisor) int {
	t.Helper()
	p, err := s.Pending(t.Context(), "t", false)
	if err != nil {
		t.Fatal(err)
	}
	return p.Count
}

func mustIdle(t *testing.T, s *Supervisor) {
	t.Helper()
	if i, err := s.Idle(t.Context(), "t", -1, nil); err != nil || !i.Idle {
		t.Fatalf("idle: %+v, %v", i, err)
	}
}

func livesStill(pid int) bool {
	st, err := platform.ReadStat(pid)
	return err == nil && st.Alive()
}

// S1-01: every record says what it is, whose, and how long it may live.
func TestS1_01_RecordsNameTheirOwner(t *testing.T) {
	s := open(t, Config{})
	h := mustStart(t, s, sh("sleep 600"))
	r, _ := runs(t, t.Context(), s, sh("sleep 600"))
	l, err := s.List(t.Context(), journal.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[handles.ID][3]string{}
	for _, rec := range l.Handles {
		got[rec.HandleID] = [3]string{rec.Kind, rec.SessionID, rec.Lifetime}
	}
	if got[h.HandleID] != [3]string{"handle", "t", "session"} || got[r] != [3]string{"run", "t", "scope"} {
		t.Errorf("got %v", got)
	}
}

// S1-02, S1-03, S1-04, S1-06: the result of a parent run goes to its caller
// alone, that of an awaited handle into the inbox, that of a service nowhere;
// cancelling the run touches neither handle.
func TestS1_02_RunAndHandles(t *testing.T) {
	s := open(t, Config{})
	h, service := mustStart(t, s, sh("sleep 600")), sh("exit 3")
	service.Lease = LeaseService
	id, ended := runs(t, t.Context(), s, sh("sleep 600"))
	c, err := s.Cancel(t.Context(), string(id), "", wire.Cancel{})
	if err != nil || !c.Cancelled || (<-ended).Delivery != handles.DeliveryNone {
		t.Errorf("cancel of the run: %+v, %v", c, err)
	}
	rec, err := s.Show(t.Context(), string(h.HandleID), "")
	if err != nil || rec.Status != handles.Running {
		t.Errorf("the handle is %+v, %v", rec, err)
	}
	if n := pending(t, s); n != 0 {
		t.Errorf("%d owed after a parent run", n)
	}
	if rec := mustWait(t, s, mustStart(t, s, service).HandleID); *rec.ExitCode != 3 || rec.Delivery != handles.DeliveryNone || pending(t, s) != 0 {
		t.Errorf("service: %+v, %d owed", rec, pending(t, s))
	}
	mustWait(t, s, mustStart(t, s, sh("exit 0")).HandleID)
	if n := pending(t, s); n != 1 {
		t.Errorf("%d owed after an awaited handle, want 1", n)
	}
}

// S1-09: the id of a run that has ended cannot cancel a later one.
func TestS1_09_OldRunCancelsNothing(t *testing.T) {
	s := open(t, Config{})
	first, ended := runs(t, t.Context(), s, sh("exit 0"))
	<-ended
	second, _ := runs(t, t.Context(), s, sh("sleep 600"))
	c, err := s.Cancel(t.Context(), string(first), "", wire.Cancel{})
	if err != nil || c.Cancelled {
		t.Errorf("cancel of the first: %+v, %v", c, err)
	}
	if rec, err := s.Show(t.Context(), string(second), ""); err != nil || rec.Status != handles.Running {
		t.Errorf("the second is %+v, %v", rec, err)
	}
}

// S1-11, S1-41: one parent run at a time, until its end is written and not only
// seen; other sessions are free; one that is being settled counts as busy.
func TestS1_11_BusyUntilSettled(t *testing.T) {
	g := newGate("settle")
	s := open(t, Config{Hooks: g.hooks()})
	id, ended := runs(t, t.Context(), s, sh("exit 0"))
	<-g.reached
	_, err := s.Run(t.Context(), sh("exit 0"), nobodyAsked, nil)
	var e *handles.Error
	if !errors.As(err, &e) || e.Code != handles.CodeBusy || e.Active != id {
		t.Errorf("a second run: %v", err)
	}
	if i, err := s.Idle(t.Context(), "t", 0, nil); err != nil || i.Idle || i.Runs != 1 {
		t.Errorf("idle: %+v, %v", i, err)
	}
	other := sh("exit 0")
	other.Session = "u"
	_, others := runs(t, t.Context(), s, other)
	close(g.open)
	<-ended
	<-others
	if _, err := s.Run(t.Context(), sh("exit 0"), nobodyAsked, func(*wire.Started) error { return nil }); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

// S1-08: a call in the caller's process obeys its context, and nothing that
// happens to a daemon.
func TestS1_08_EmbeddedRunObeysItsContextAlone(t *testing.T) {
	s, daemon := open(t, Config{}), open(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := sh("read x; exit 7")
	req.Stdin = "pipe"
	id, ended := runs(t, ctx, s, req)
	daemon.Shutdown(t.Context())
	if _, err := s.Send(t.Context(), string(id), "", []byte("go\n"), false); err != nil {
		t.Fatal(err)
	}
	if rec := <-ended; *rec.ExitCode != 7 {
		t.Errorf("after the daemon's end: %+v", rec)
	}
	id, ended = runs(t, ctx, s, sh("sleep 600"))
	cancel()
	<-ended
	if rec := mustWait(t, s, id); rec.Status != handles.Killed || rec.Cause != handles.CauseOwnerGone {
		t.Errorf("after its context: %s by %s", rec.Status, rec.Cause)
	}
}

// S1-23, S4-25: a scope is one token over several runs: one can end alone, the
// scope ends those below it too, and starts nothing any more.
func TestS1_23_Scopes(t *testing.T) {
	s := open(t, Config{})
	for _, sc := range []handles.Scope{{Name: "g"}, {Name: "below", Parent: "g"}, {Name: "beside"}} {
		if _, err := s.OpenScope(t.Context(), "t", sc); err != nil {
			t.Fatal(err)
		}
	}
	start := func(scope string) handles.ID {
		req := sh("sleep 600")
		req.Scope = scope
		return mustStart(t, s, req).HandleID
	}
	alone, second, below, beside := start("g"), start("g"), start("below"), start("beside")
	if _, err := s.Cancel(t.Context(), string(alone), "", wire.Cancel{}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []handles.ID{second, below} {
		if rec, err := s.Show(t.Context(), string(id), ""); err != nil || rec.Status != handles.Running {
			t.Errorf("a sibling is %+v, %v", rec, err)
		}
	}
	rep, err := s.CancelScope(t.Context(), "t", "g", wire.EndSession{})
	if err != nil || !slices.Equal(rep.Ended, sorted(second, below)) || !slices.Equal(rep.Cancelled, []string{"g", "below"}) {
		t.Errorf("cancel: %+v, %v", rep, err)
	}
	if rec := mustWait(t, s, below); rec.Cause != handles.CauseScope || rec.Scope != "below" {
		t.Errorf("%+v", rec)
	}
	if rec, err := s.Show(t.Context(), string(beside), ""); err != nil || rec.Status != handles.Running {
		t.Errorf("another scope's is %+v, %v", rec, err)
	}
	req := sh("exit 0")
	for _, req.Scope = range []string{"g", "below"} {
		if _, err := s.Start(t.Context(), req); !errors.Is(err, handles.ErrScope) {
			t.Errorf("start in %s: %v", req.Scope, err)
		}
	}
	if _, err := s.OpenScope(t.Context(), "t", handles.Scope{Name: "late", Parent: "g"}); !errors.Is(err, handles.ErrScope) {
		t.Errorf("open below a cancelled one: %v", err)
	}
}

func sorted(ids ...handles.ID) []handles.ID {
	slices.Sort(ids)
	return ids
}

// S3-33, S3-24: from within a session only that one, and those opened from
// within it, can be ended; without a token everything; the daemon not at all.
func TestS3_33_OthersSessionsAreNotDeleted(t *testing.T) {
	s := open(t, Config{})
	open := func(name string, who Caller) Caller {
		v, err := s.OpenSession(t.Context(), wire.OpenSession{Name: name}, who)
		if err != nil {
			t.Fatal(err)
		}
		return Caller{Token: v.Token}
	}
	a, b := open("a", nobodyAsked), open("b", nobodyAsked)
	inner := open("inner", a)
	for who, name := range map[Caller]string{a: "b", b: "inner", inner: "a", {Token: "made up"}: "a"} {
		if _, err := s.DeleteSession(t.Context(), name, wire.EndSession{}, who); !errors.Is(err, handles.ErrForbidden) {
			t.Errorf("delete of %s: %v", name, err)
		}
	}
	if err := s.MayStop(a); !errors.Is(err, handles.ErrForbidden) {
		t.Errorf("a session stops the daemon: %v", err)
	}
	for _, c := range []struct {
		name string
		who  Caller
	}{{"inner", a}, {"a", a}, {"b", nobodyAsked}} {
		if _, err := s.DeleteSession(t.Context(), c.name, wire.EndSession{}, c.who); err != nil {
			t.Errorf("delete of %s: %v", c.name, err)
		}
		if _, err := s.Session(t.Context(), c.name); !errors.Is(err, handles.ErrNotFound) {
			t.Errorf("%s is there: %v", c.name, err)
		}
	}
}

// S1-07, S1-50: a session that is attached ends with its connection: who drops
// it does not wait, and the tree is gone afterwards.
func TestS1_50_DroppedSessionEndsBestEffort(t *testing.T) {
	s := open(t, Config{})
	ctx, drop := context.WithCancel(t.Context())
	opened, left := make(chan struct{}), make(chan error, 1)
	go func() { // ends with ctx
		left <- s.Attach(ctx, wire.OpenSession{Name: "t"}, nobodyAsked, func(*handles.Session) error { close(opened); return nil })
	}()
	<-opened
	a := mustStart(t, s, sh("trap '' TERM; echo up; while :; do sleep 0.05; done"))
	if w, err := s.WaitOutput(t.Context(), string(a.HandleID), "", wire.WaitOutput{Pattern: "up"}); err != nil || w.Status != wire.Matched {
		t.Fatal(w, err)
	}
	began := time.Now()
	drop()
	if err := <-left; err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d > time.Second || !livesStill(a.PID) { // the grace is 2 s: it was not waited for
		t.Errorf("the drop took %v", d)
	}
	if rec := mustWait(t, s, a.HandleID); rec.Cause != handles.CauseSession || rec.Delivery != handles.DeliveryDropped || livesStill(a.PID) {
		t.Errorf("%s by %s, %s", rec.Status, rec.Cause, rec.Delivery)
	}
	if v, err := s.Session(t.Context(), "t"); err != nil || v.Status != handles.SessionClosed {
		t.Errorf("the session is %+v, %v", v, err)
	}
}

// S1-10: a start is answered before the command has done anything: this one
// would take ten minutes.
func TestS1_10_StartDoesNotWait(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, sh("sleep 600"))
	if rec, err := s.Show(t.Context(), string(a.HandleID), ""); err != nil || a.Status != handles.Running || rec.Status != handles.Running {
		t.Errorf("answered %s, then %+v, %v", a.Status, rec, err)
	}
}

// A run that is in front for a while goes on as a handle: its end is owed then,
// the session is free, and its caller's end does not end it. One that has ended
// in time was never owed.
func TestReleasedRunGoesOn(t *testing.T) {
	s := open(t, Config{})
	req := sh("echo so far; read x; echo more")
	req.Stdin, req.Inline, req.BackgroundMS = "pipe", true, new(int64)
	*req.BackgroundMS = 50
	ctx, cancel := context.WithCancel(t.Context())
	id, answered := runs(t, ctx, s, req)
	rec := <-answered
	if rec.Status != handles.Running || rec.Kind != "handle" || rec.Lifetime != "session" || rec.Delivery != handles.DeliveryPending || rec.Stdout == nil {
		t.Errorf("released: %+v", rec)
	}
	cancel()
	s.ownerGone(s.live(id), "its caller has ended, as callers do")
	if _, ended := runs(t, t.Context(), s, sh("exit 0")); (<-ended).Status != handles.Completed {
		t.Error("the session is not free")
	}
	if _, err := s.Send(t.Context(), string(id), "", nil, true); err != nil {
		t.Fatal(err)
	}
	if rec := mustWait(t, s, id); rec.Status != handles.Completed || pending(t, s) != 1 {
		t.Errorf("its end: %s, %d owed", rec.Status, pending(t, s))
	}
	*req.BackgroundMS, req.Stdin = 60_000, ""
	if _, ended := runs(t, t.Context(), s, req); (<-ended).Delivery != handles.DeliveryNone || pending(t, s) != 1 {
		t.Errorf("ended in front: %d owed", pending(t, s))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.sessions["t"].places; n != 0 {
		t.Errorf("%d places are kept for nothing", n)
	}
}

// A second cancel without grace goes to the next step at once.
func TestSecondCancelHurries(t *testing.T) {
	s := open(t, Config{})
	req, none := sh("trap '' TERM; echo up; while :; do sleep 0.05; done"), int64(0)
	grace := int64(600_000)
	req.GraceMS = &grace
	a := mustStart(t, s, req)
	if w, err := s.WaitOutput(t.Context(), string(a.HandleID), "", wire.WaitOutput{Pattern: "up"}); err != nil || w.Status != wire.Matched {
		t.Fatal(w, err)
	}
	for _, k := range []wire.Cancel{{NoWait: true, Signal: "TERM"}, {NoWait: true, GraceMS: &none}, {NoWait: true, GraceMS: &none}} {
		if _, err := s.Cancel(t.Context(), string(a.HandleID), "", k); err != nil {
			t.Fatal(err)
		}
	}
	if rec := mustWait(t, s, a.HandleID); rec.Signal != "KILL" || rec.DurationMS > 60_000 {
		t.Errorf("%s after %s ms", rec.Signal, strconv.FormatInt(rec.DurationMS, 10))
	}
}
