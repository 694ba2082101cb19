package supervisor

import (
	"context"
	"errors"
	"slices"
	"testing"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// What a model and random steps found (test/chaos, TestModel), each as small as
// it can be.

// A request that was refused opens no session.
func TestRefusedRequestOpensNoSession(t *testing.T) {
	s := open(t, Config{})
	req := sh("exit 0")
	req.Session, req.Scope = "fresh", "none"
	if _, err := s.Start(t.Context(), req); !errors.Is(err, handles.ErrNotFound) {
		t.Fatalf("start in a scope that is not there: %v", err)
	}
	if _, err := s.OpenScope(t.Context(), "fresh", handles.Scope{Name: "below", Parent: "none"}); !errors.Is(err, handles.ErrNotFound) {
		t.Fatalf("scope below one that is not there: %v", err)
	}
	if v, err := s.Session(t.Context(), "fresh"); !errors.Is(err, handles.ErrNotFound) {
		t.Errorf("session %+v, %v", v, err)
	}
}

// A batch that went back into the inbox may be acknowledged again, as any other:
// whoever lost the answer asks again, also after a restart.
func TestReturnedBatchIsAcknowledgedAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	done(t, s, "exit 0")
	b := take(t, s, reading(t, "a"), 0)
	if a := settle(t, s, b.Batch, "returned"); a.Count != 1 {
		t.Fatalf("returned %+v", a)
	}
	for _, outcome := range []string{"returned", "delivered"} {
		if a := settle(t, s, b.Batch, outcome); a.Count != 0 || a.Pending != 1 {
			t.Errorf("%s afterwards: %+v", outcome, a)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	if a := settle(t, s, b.Batch, "returned"); a.Count != 0 || a.Pending != 1 {
		t.Errorf("after a restart: %+v", a)
	}
	if _, err := s.Acknowledge(t.Context(), "other", wire.Acknowledge{Batch: b.Batch}); !errors.Is(err, handles.ErrNotFound) {
		t.Errorf("in another session: %v", err)
	}
}

// What went back into the inbox is marked when it is given again, also after a
// restart.
func TestReturnedEndIsMarkedAfterRestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	done(t, s, "exit 0")
	settle(t, s, take(t, s, reading(t, "a"), 0).Batch, "returned")
	done(t, s, "exit 0")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	b := take(t, s, reading(t, "b"), 0)
	if b.Count != 2 || !b.Completions[0].Redelivered || b.Completions[1].Redelivered {
		t.Errorf("batch %+v", b)
	}
}

// The end that a run's own end gives to who waits for it is durable before it is
// told: a batch that was told is one after a crash, too.
func TestEndIsGivenToWhoWaitsOnceDurable(t *testing.T) {
	var s *Supervisor
	var release func()
	s = open(t, Config{Hooks: &Hooks{At: func(point string, _ handles.ID) {
		if point == "settled" { // the end is in the journal, who took it is not
			release = block(t, s)
		}
	}}})
	req := sh("read x; exit 3")
	req.Stdin = "pipe"
	a := mustStart(t, s, req)
	who := reading(t, "a")
	told := make(chan *wire.Waited, 1)
	r := s.live(a.HandleID)
	claimed := s.claim(r, who) // before it can end, as WaitTake does
	go func() {                // ends with the run
		w, err := s.WaitTake(context.Background(), string(a.HandleID), "", 0, who)
		if err != nil {
			t.Error(err)
		}
		told <- w
	}()
	if _, err := s.Send(t.Context(), string(a.HandleID), "", []byte("x\n"), false); err != nil {
		t.Fatal(err)
	}
	<-r.over
	claimed()
	if w := held(t, "who waited was given the end", told, release); w == nil || w.Batch == "" || w.Redelivered {
		t.Errorf("given %+v", w)
	}
}

// An acknowledgement may be repeated while the first is on its way.
func TestAcknowledgementIsRepeatedAtOnce(t *testing.T) {
	s := open(t, Config{})
	done(t, s, "exit 0")
	b := take(t, s, reading(t, "a"), 0)
	release := block(t, s)
	answers := make(chan error, 2)
	for range 2 {
		go func() { // ends once the journal is free
			_, err := s.Acknowledge(context.Background(), "t", wire.Acknowledge{Batch: b.Batch})
			answers <- err
		}()
	}
	if err := held(t, "one of two was answered", answers, release); err != nil {
		t.Error(err)
	}
	if err := <-answers; err != nil {
		t.Error(err)
	}
}

// A supervisor that was killed when the close of a session or of a scope was
// durable, and nothing more of it: the next one does the rest, whoever asks.
func TestEndIsFinishedByTheNext(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	owed := done(t, s, "exit 0")[0]
	a := mustStart(t, s, sh("sleep 600"))
	in := sh("sleep 600")
	in.Session, in.Scope = "u", "g"
	if _, err := s.OpenScope(t.Context(), "u", handles.Scope{Name: "g"}); err != nil {
		t.Fatal(err)
	}
	b := mustStart(t, s, in)
	s.mu.Lock()
	commits := s.shut(s.sessions["t"], ending{closes: true, why: "a test"})
	commits = append(commits, s.cancelScopes(s.sessions["u"], "g", &wire.ScopeReport{})...)
	s.mu.Unlock()
	if err := committed(commits, "a test"); err != nil {
		t.Fatal(err)
	}
	s.resumeSessions() // as after a restart that has taken the runs up
	if rec := mustWait(t, s, a.HandleID); rec.Cause != handles.CauseSession || rec.Delivery != handles.DeliveryDropped {
		t.Errorf("of a closed session: %s, %s", rec.Cause, rec.Delivery)
	}
	if rec := mustWait(t, s, b.HandleID); rec.Cause != handles.CauseScope || rec.Delivery != handles.DeliveryPending {
		t.Errorf("of a cancelled scope: %s, %s", rec.Cause, rec.Delivery)
	}
	if _, err := s.CloseSession(t.Context(), "t", wire.EndSession{}, nobodyAsked); err != nil { // waits for the rest
		t.Fatal(err)
	}
	if rec := mustWait(t, s, owed); rec.Delivery != handles.DeliveryDropped || pending(t, s) != 0 {
		t.Errorf("owed to a closed session: %s, %d pending", rec.Delivery, pending(t, s))
	}
}

// A close that was cut short when nothing lived any more, asked for again.
func TestCloseAgainDropsWhatIsOwed(t *testing.T) {
	s := open(t, Config{})
	owed := done(t, s, "exit 0")
	s.mu.Lock()
	commits := s.shut(s.sessions["t"], ending{closes: true, why: "a test"})
	s.mu.Unlock()
	if err := committed(commits, "a test"); err != nil {
		t.Fatal(err)
	}
	rep, err := s.CloseSession(t.Context(), "t", wire.EndSession{}, nobodyAsked)
	if err != nil || !slices.Equal(rep.Dropped, owed) || pending(t, s) != 0 {
		t.Errorf("closed again: %+v, %v, %d pending", rep, err, pending(t, s))
	}
}
