package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// A listener reads the notices of a session.
type listener struct {
	t    *testing.T
	got  chan wire.Notice // closed at the end of the stream
	seen []wire.Notice
}

// listen subscribes and returns when the first line was there.
func listen(t *testing.T, s *Supervisor, session string, since int64) *listener {
	t.Helper()
	s.mu.Lock()
	s.session(session)
	s.mu.Unlock()
	l := &listener{t: t, got: make(chan wire.Notice, 4096)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // ends with the session or the test
		defer close(done)
		defer close(l.got)
		err := s.Notices(ctx, session, since, func(n wire.Notice) error { l.got <- n; return nil })
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("notices: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	if n := l.next(); n.Kind != wire.NoticeSubscribed {
		t.Fatalf("the first line is %+v", n)
	}
	return l
}

func (l *listener) next() wire.Notice {
	l.t.Helper()
	select {
	case n, ok := <-l.got:
		if !ok {
			return wire.Notice{Kind: "end of stream"}
		}
		l.seen = append(l.seen, n)
		return n
	case <-time.After(20 * time.Second):
		l.t.Fatalf("no notice; so far %+v", l.seen)
	}
	return wire.Notice{}
}

// until reads up to a kind.
func (l *listener) until(kind string) wire.Notice {
	l.t.Helper()
	for {
		switch n := l.next(); n.Kind {
		case kind:
			return n
		case "end of stream":
			l.t.Fatalf("the stream ended without %s: %+v", kind, l.seen)
		}
	}
}

func (l *listener) kinds() (k []string) {
	for _, n := range l.seen {
		k = append(k, n.Kind)
	}
	return k
}

// S1-24, S1-25: what starts after the subscribed line is not missed; two
// subscribers see the same, which takes nothing from what is owed; who comes
// late reads from a number on.
func TestS1_24_SubscribeThenStart(t *testing.T) {
	s := open(t, Config{})
	a, b := listen(t, s, "t", 0), listen(t, s, "t", 0)
	id := mustStart(t, s, sh("exit 4")).HandleID
	for _, l := range []*listener{a, b} {
		l.until(wire.NoticeReady)
		if want := []string{wire.NoticeSubscribed, wire.NoticeStarted, wire.NoticeFinished, wire.NoticeReady}; !slices.Equal(l.kinds(), want) {
			t.Errorf("got %v, want %v", l.kinds(), want)
		}
		if f := l.seen[2]; f.HandleID != id || f.Status != handles.Failed || *f.ExitCode != 4 {
			t.Errorf("finished: %+v", f)
		}
	}
	if n := pending(t, s); n != 1 {
		t.Errorf("%d owed after it was observed twice", n)
	}
	late := listen(t, s, "t", a.seen[1].Seq)
	late.until(wire.NoticeReady)
	if got, want := late.kinds()[1:], []string{wire.NoticeFinished, wire.NoticeReady}; !slices.Equal(got, want) {
		t.Errorf("since %d: %v, want %v", a.seen[1].Seq, got, want)
	}
}

// S1-26: a reader that does not come along misses the oldest, and is told how
// many: seen + lagged = produced.
func TestS1_26_LaggedIsExact(t *testing.T) {
	s := open(t, Config{})
	const n = 200 // of which each makes two, more than the ring holds
	stopped, seen, lagged := make(chan struct{}), 0, int64(0)
	got := make(chan wire.Notice)
	go func() { // ends with the session
		defer close(got)
		_ = s.Notices(t.Context(), DefaultSession, 0, func(n wire.Notice) error { <-stopped; got <- n; return nil })
	}()
	for i := range n {
		mustStart(t, s, wire.Start{Command: []string{"/bin/true"}, Name: fmt.Sprint("n", i)})
	}
	mustAllEnd(t, s)
	s.mu.Lock()
	produced := s.sessions[DefaultSession].notices.Next()
	s.sessions[DefaultSession].notices.Close()
	s.mu.Unlock()
	close(stopped)
	for x := range got {
		switch x.Kind {
		case wire.NoticeSubscribed:
		case wire.NoticeLagged:
			lagged += x.Count
		default:
			seen++
		}
	}
	if int64(seen)+lagged != produced || produced != 2*n || seen != wire.NoticeRing {
		t.Errorf("seen %d, lagged %d, produced %d", seen, lagged, produced)
	}
}

func mustAllEnd(t *testing.T, s *Supervisor) {
	t.Helper()
	if i, err := s.Idle(t.Context(), DefaultSession, -1, nil); err != nil || !i.Idle {
		t.Fatalf("%+v, %v", i, err)
	}
}

// S1-28, G21: every way to end is told, with its own error, and announced.
func TestG21_EveryEndIsAnnounced(t *testing.T) {
	s := open(t, Config{})
	deadline := sh("sleep 600")
	deadline.DeadlineMS = 20
	for name, c := range map[string]struct {
		req    wire.Start
		cancel bool
		status handles.Status
		cause  handles.Cause
	}{
		"true": {sh("exit 0"), false, handles.Completed, ""}, "false": {sh("exit 1"), false, handles.Failed, ""},
		"missing":  {wire.Start{Command: []string{"/no/such"}, Session: "t"}, false, handles.Failed, ""},
		"deadline": {deadline, false, handles.Killed, handles.CauseDeadline},
		"cancel":   {sh("sleep 600"), true, handles.Killed, handles.CauseCancelled},
		"crash":    {sh("kill -SEGV $$"), false, handles.Failed, ""},
	} {
		l := listen(t, s, "t", 0)
		id := mustStart(t, s, c.req).HandleID
		if c.cancel {
			if _, err := s.Cancel(t.Context(), string(id), "", wire.Cancel{}); err != nil {
				t.Fatal(err)
			}
		}
		n := l.until(wire.NoticeFinished)
		if n.HandleID != id || n.Status != c.status || n.Cause != c.cause || (name == "missing") != (n.Error != "") {
			t.Errorf("%s: %+v", name, n)
		}
		if n := l.until(wire.NoticeReady); n.Count != 1 {
			t.Errorf("%s: ready %+v", name, n)
		}
		settle(t, s, take(t, s, nobodyAsked, 0).Batch, "")
	}
}

// S1-30: the stream of a session that is closed says so and ends.
func TestS1_30_ClosedThenEnd(t *testing.T) {
	s := open(t, Config{})
	l := listen(t, s, "t", 0)
	mustStart(t, s, sh("sleep 600"))
	if _, err := s.CloseSession(t.Context(), "t", wire.EndSession{}, nobodyAsked); err != nil {
		t.Fatal(err)
	}
	l.until(wire.NoticeClosed)
	if n := l.next(); n.Kind != "end of stream" {
		t.Errorf("after closed: %+v", n)
	}
}

// S1-32: when an end is told it is owed already, or soon: never not at all.
func TestS1_32_FinishedThenOwed(t *testing.T) {
	s := open(t, Config{})
	l := listen(t, s, "t", 0)
	for range 100 {
		id := mustStart(t, s, wire.Start{Command: []string{"/bin/true"}, Session: "t"}).HandleID
		for l.until(wire.NoticeFinished).HandleID != id {
		}
		b, err := s.Take(t.Context(), "t", wire.Take{WaitMS: 10_000}, nobodyAsked)
		if err != nil || b.Count != 1 || b.Completions[0].HandleID != id {
			t.Fatalf("%+v, %v", b, err)
		}
		settle(t, s, b.Batch, "")
	}
}

// S1-33: what ends while a parent run is active is announced at its end, and
// once an idle period.
func TestS1_33_AnnouncedAtTheEndOfTheRun(t *testing.T) {
	s := open(t, Config{})
	l := listen(t, s, "t", 0)
	req := sh("read x")
	req.Stdin = "pipe"
	id, ended := runs(t, t.Context(), s, req)
	done(t, s, "exit 0", "exit 0")
	if _, err := s.Send(t.Context(), string(id), "", nil, true); err != nil {
		t.Fatal(err)
	}
	<-ended
	if n := l.until(wire.NoticeReady); n.Count != 2 {
		t.Errorf("%+v", n)
	}
	if k := l.kinds(); k[len(k)-2] != wire.NoticeFinished || l.seen[len(k)-2].HandleID != id {
		t.Errorf("not after the run's end: %v", k)
	}
	done(t, s, "exit 0") // the same idle period: no second hint
	second, ended := runs(t, t.Context(), s, sh("exit 0"))
	<-ended
	for n := l.until(wire.NoticeFinished); n.HandleID != second; n = l.next() {
		if n.Kind == wire.NoticeReady {
			t.Errorf("a second hint in one idle period: %+v", n)
		}
	}
	if n := l.until(wire.NoticeReady); n.Count != 3 {
		t.Errorf("%+v", n)
	}
}

// S1-34, S2-01: quiet is told from the state, with no notice ever read.
func TestS1_34_IdleFromState(t *testing.T) {
	s := open(t, Config{})
	req := sh("read x; exit 2")
	req.Stdin = "pipe"
	a := mustStart(t, s, req)
	if i, err := s.Idle(t.Context(), "t", 0, nil); err != nil || i.Idle || i.Handles != 1 { // S1-41
		t.Errorf("while it runs: %+v, %v", i, err)
	}
	if i, err := s.Idle(t.Context(), "t", 10*time.Millisecond, nil); err != nil || i.Idle || !i.TimedOut {
		t.Errorf("a short wait: %+v, %v", i, err)
	}
	if _, err := s.Send(t.Context(), string(a.HandleID), "", nil, true); err != nil {
		t.Fatal(err)
	}
	mustIdle(t, s)
	if b := take(t, s, nobodyAsked, 0); b.Count != 1 || b.Completions[0].Status != handles.Failed {
		t.Errorf("%+v", b)
	}
}

// D7: a pattern is told once, also one that was there before anybody looked.
func TestD7_NotifyMatch(t *testing.T) {
	s := open(t, Config{})
	l := listen(t, s, "t", 0)
	req := sh("echo ready here; echo ready again; exec sleep 600")
	req.NotifyMatch = []string{"ready", "never"}
	mustStart(t, s, req)
	if n := l.until(wire.NoticeMatched); n.Pattern != "ready" || n.Source != "stdout" || n.From != 0 || n.To != 5 {
		t.Errorf("%+v", n)
	}
	if _, err := s.ClearSession(t.Context(), "t", wire.EndSession{}, nobodyAsked); err != nil {
		t.Fatal(err)
	}
	for n := l.next(); n.Kind != wire.NoticeFinished; n = l.next() {
		if n.Kind == wire.NoticeMatched {
			t.Errorf("again: %+v", n)
		}
	}
}

// S1-14, S1-15, S1-16, S1-17: one receiver; a reader that does not come along
// makes nobody wait, and the gaps it is told add up to what the record says.
func TestS1_15_EventsAreBoundedAndExact(t *testing.T) {
	s := open(t, Config{})
	req := sh("while read x; do echo $x; done")
	req.Stdin, req.Events = "pipe", 8
	id := string(mustStart(t, s, req).HandleID)
	var sum, delivered int64
	stopped, ready, left := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() { // ends with the run
		first := true
		left <- s.Events(t.Context(), id, "", true, func(e wire.Event) error {
			if first {
				first = false
				close(ready)
				<-stopped
			}
			if sum += e.Dropped; e.Kind != wire.EventOverflow {
				delivered++
			}
			return nil
		})
	}()
	<-ready
	if err := s.Events(t.Context(), id, "", true, nil); !errors.Is(err, &handles.Error{Code: handles.CodeTaken}) {
		t.Errorf("a second receiver: %v", err)
	}
	for i := range 40 { // each a piece of output of its own, with the receiver stopped
		line := fmt.Sprintf("<%d>", i)
		if _, err := s.Send(t.Context(), id, "", []byte(line+"\n"), i == 39); err != nil {
			t.Fatal(err)
		}
		if w, err := s.WaitOutput(t.Context(), id, "", wire.WaitOutput{Pattern: line}); err != nil || w.Status != wire.Matched {
			t.Fatal(w, err)
		}
	}
	rec := mustWait(t, s, handles.ID(id))
	close(stopped)
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	if rec.Events.Dropped == 0 || sum != rec.Events.Dropped || delivered+sum != rec.Events.Total {
		t.Errorf("delivered %d, gaps %d, record %+v", delivered, sum, rec.Events)
	}
	if rec.Status != handles.Completed || rec.ExitCode == nil || rec.Output == nil {
		t.Errorf("the outcome: %+v", rec)
	}
	bad := sh("exit 0")
	bad.Events = -1
	if _, err := s.Start(t.Context(), bad); !errors.Is(err, handles.ErrInvalid) { // S1-13
		t.Errorf("events -1: %v", err)
	}
}

// Events begin with the start, whatever was written meanwhile.
func TestEventsBeginWithStarted(t *testing.T) {
	s := open(t, Config{})
	for range 20 {
		req := sh("echo first; read x")
		req.Stdin = "pipe"
		id := string(mustStart(t, s, req).HandleID)
		if _, err := s.WaitOutput(t.Context(), id, "", wire.WaitOutput{Pattern: "first"}); err != nil {
			t.Fatal(err)
		}
		enough := errors.New("enough")
		var kinds []string
		err := s.Events(t.Context(), id, "", false, func(e wire.Event) error {
			if kinds = append(kinds, e.Kind); len(kinds) == 2 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || !slices.Equal(kinds, []string{wire.EventStarted, wire.EventOutput}) {
			t.Fatalf("got %v, %v", kinds, err)
		}
	}
}
