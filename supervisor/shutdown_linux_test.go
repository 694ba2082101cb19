package supervisor

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// S1-43, S1-45: a session whose parent run is active is busy, and nothing of it
// is touched; also while that run, whose caller is gone, is being ended. Another
// client can wait for it.
func TestS1_43_ShutdownIsRefusedWhileBusy(t *testing.T) {
	s := open(t, Config{})
	h := mustStart(t, s, sh("sleep 600"))
	ctx, gone := context.WithCancel(t.Context())
	req := sh("trap 'read x; exit 0' TERM; echo up; while :; do sleep 0.02; done")
	req.Stdin = "pipe"
	id, ended := runs(t, ctx, s, req)
	busy := func() {
		t.Helper()
		_, err := s.ShutdownSession(t.Context(), "t", wire.EndSession{}, nobodyAsked)
		var e *handles.Error
		if !errors.As(err, &e) || e.Code != handles.CodeBusy || e.Active != id {
			t.Errorf("shutdown: %v", err)
		}
	}
	if w, err := s.WaitOutput(t.Context(), string(id), "", wire.WaitOutput{Pattern: "up"}); err != nil || w.Status != wire.Matched {
		t.Fatal(w, err)
	}
	busy()
	gone()
	<-ended
	awaitStatus(t, s, id, handles.Stopping)
	busy()
	if rec, err := s.Show(t.Context(), string(h.HandleID), ""); err != nil || rec.Status != handles.Running {
		t.Errorf("the handle is %+v, %v", rec, err)
	}
	if _, err := s.Send(t.Context(), string(id), "", nil, true); err != nil {
		t.Fatal(err)
	}
	if rec := mustWait(t, s, id); rec.Cause != handles.CauseOwnerGone || rec.Status != handles.Killed {
		t.Errorf("%s by %s", rec.Status, rec.Cause)
	}
	rep, err := s.ShutdownSession(t.Context(), "t", wire.EndSession{}, nobodyAsked)
	if err != nil || !slices.Equal(rep.Ended, []handles.ID{h.HandleID}) || rep.Error != "" {
		t.Errorf("%+v, %v", rep, err)
	}
}

func awaitStatus(t *testing.T, s *Supervisor, id handles.ID, want handles.Status) {
	t.Helper()
	for {
		r := s.live(id)
		if r == nil {
			t.Fatalf("%s has ended before it was %s", id, want)
		}
		rec, bell := r.state()
		if rec.Status == want {
			return
		}
		select {
		case <-bell:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s is %s, want %s", id, rec.Status, want)
		}
	}
}

// S1-44: bounded by the grace whatever the commands do.
func TestS1_44_ShutdownIsBounded(t *testing.T) {
	s := open(t, Config{Exclusive: true})
	req := sh("trap '' TERM; setsid sh -c \"trap '' TERM; echo up; while :; do sleep 0.05; done\" & wait; wait; while :; do sleep 0.05; done")
	req.GraceMS = new(int64)
	*req.GraceMS = 600_000
	a := mustStart(t, s, req)
	if w, err := s.WaitOutput(t.Context(), string(a.HandleID), "", wire.WaitOutput{Pattern: "up"}); err != nil || w.Status != wire.Matched {
		t.Fatal(w, err)
	}
	grace, began := int64(300), time.Now()
	rep, err := s.ShutdownSession(t.Context(), "t", wire.EndSession{GraceMS: &grace}, nobodyAsked)
	if d := time.Since(began); err != nil || d < 300*time.Millisecond || d > 5*time.Second || rep.Error != "" || len(rep.Ended) != 1 || livesStill(a.PID) {
		t.Errorf("after %v: %+v, %v", d, rep, err)
	}
}

// S1-46, S1-49, S2-30: closed to new work first, then everything is ended and
// what is owed is dropped and named; records stay, and observers see the ends.
func TestS1_46_ShutdownClosesEndsAndDrops(t *testing.T) {
	var once sync.Once
	var s *Supervisor
	late := make(chan error, 1)
	hooks := &Hooks{At: func(point string, id handles.ID) {
		if point == "settle" && s.live(id).spec.Command[2] == "sleep 600" {
			once.Do(func() { // in the middle of the shutdown
				_, err := s.Start(context.Background(), sh("exit 0"))
				late <- err
			})
		}
	}}
	s = open(t, Config{Hooks: hooks})
	l := listen(t, s, "t", 0)
	owed := done(t, s, "exit 3")
	live := mustStart(t, s, sh("sleep 600")).HandleID
	rep, err := s.ShutdownSession(t.Context(), "t", wire.EndSession{}, nobodyAsked)
	if err != nil || !slices.Equal(rep.Dropped, sorted(owed[0], live)) || !slices.Equal(rep.Ended, []handles.ID{live}) {
		t.Errorf("%+v, %v", rep, err)
	}
	if err := <-late; !errors.Is(err, handles.ErrClosed) {
		t.Errorf("a start during the shutdown: %v", err)
	}
	for _, again := range []func() error{
		func() error { _, err := s.Start(t.Context(), sh("exit 0")); return err },
		func() error { _, err := s.Run(t.Context(), sh("exit 0"), nobodyAsked, nil); return err },
		func() error { _, err := s.OpenScope(t.Context(), "t", handles.Scope{Name: "g"}); return err },
	} {
		if err := again(); !errors.Is(err, handles.ErrClosed) {
			t.Errorf("afterwards: %v", err)
		}
	}
	for _, id := range rep.Dropped {
		if rec := mustWait(t, s, id); rec.Delivery != handles.DeliveryDropped || rec.EndedAt.IsZero() {
			t.Errorf("%s is %s", id, rec.Delivery)
		}
	}
	l.until(wire.NoticeClosed)
	if k := l.kinds(); k[len(k)-2] != wire.NoticeFinished {
		t.Errorf("the last end was not told before closed: %v", k)
	}
	if n := pending(t, s); n != 0 {
		t.Errorf("%d are owed", n)
	}
}

// S1-47: a shutdown that wants nothing lost is refused while something is owed
// or runs, and has done nothing then.
func TestS1_47_RequireIdle(t *testing.T) {
	s := open(t, Config{})
	refused := func(what string) {
		t.Helper()
		if _, err := s.ShutdownSession(t.Context(), "t", wire.EndSession{RequireIdle: true}, nobodyAsked); !errors.Is(err, handles.ErrOwed) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := s.ShutdownAll(t.Context(), wire.Shutdown{RequireIdle: true}); !errors.Is(err, handles.ErrOwed) {
			t.Errorf("%s, the daemon: %v", what, err)
		}
	}
	h := mustStart(t, s, sh("sleep 600"))
	refused("running")
	if rec, err := s.Show(t.Context(), string(h.HandleID), ""); err != nil || rec.Status != handles.Running {
		t.Errorf("%+v, %v", rec, err)
	}
	if _, err := s.Cancel(t.Context(), string(h.HandleID), "", wire.Cancel{}); err != nil {
		t.Fatal(err)
	}
	refused("owed")
	settle(t, s, take(t, s, nobodyAsked, 0).Batch, "")
	if rep, err := s.ShutdownSession(t.Context(), "t", wire.EndSession{RequireIdle: true}, nobodyAsked); err != nil || len(rep.Dropped) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	if rep, err := s.ShutdownAll(t.Context(), wire.Shutdown{RequireIdle: true}); err != nil || rep.Error != "" {
		t.Errorf("the daemon: %+v, %v", rep, err)
	}
}

// S1-48: what was not ended in time is named; the answer comes nevertheless.
func TestS1_48_ShutdownTimeoutNamesWhatIsLeft(t *testing.T) {
	g := newGate("observe") // its end is not seen: as good as one that cannot be killed
	s := open(t, Config{Hooks: g.hooks()})
	l := listen(t, s, "t", 0)
	a := mustStart(t, s, sh("exec sleep 600"))
	grace, began := int64(50), time.Now()
	rep, err := s.ShutdownSession(t.Context(), "t", wire.EndSession{GraceMS: &grace}, nobodyAsked)
	if err != nil || rep.Error != handles.CodeTimeout || !slices.Equal(rep.StillActive, []handles.ID{a.HandleID}) || len(rep.Ended) != 0 {
		t.Errorf("after %v: %+v, %v", time.Since(began), rep, err)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("it took %v", d)
	}
	if _, err := s.Start(t.Context(), sh("exit 0")); !errors.Is(err, handles.ErrClosed) { // S1-49
		t.Errorf("a start afterwards: %v", err)
	}
	close(g.open)
	mustWait(t, s, a.HandleID)
	l.until(wire.NoticeFinished) // S1-49: the exit is told nevertheless
	l.until(wire.NoticeClosed)
}

// S1-48: processes that are still there are named with pid, start and command.
func TestS1_48_StillRunningHasProcesses(t *testing.T) {
	s := open(t, Config{})
	a := mustStart(t, s, wire.Start{Command: []string{"sleep", "600"}, Env: os.Environ(), Session: "t"})
	ps := s.live(a.HandleID).processes()
	if len(ps) != 1 || ps[0].PID != a.PID || ps[0].StartTicks != a.Exec.StartTicks || ps[0].Command != "sleep 600" || ps[0].Why == "" {
		t.Errorf("got %+v, want the process %d", ps, a.PID)
	}
	if a.PID == os.Getpid() {
		t.Error("it is ours")
	}
}

// D3: what is owed when the daemon is shut down is delivered by the next one.
func TestD3_OwedSurvivesTheDaemon(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	ids := done(t, s, "exit 0", "exit 5")
	live := mustStart(t, s, sh("sleep 600")).HandleID
	rep, err := s.ShutdownAll(t.Context(), wire.Shutdown{})
	if err != nil || !slices.Equal(rep.Ended, []handles.ID{live}) || rep.Owed != 3 {
		t.Errorf("%+v, %v", rep, err)
	}
	if _, err := s.Start(t.Context(), sh("exit 0")); !errors.Is(err, handles.ErrDraining) {
		t.Errorf("a start afterwards: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	if b := take(t, s, nobodyAsked, 0); !slices.Equal(handlesOf(b), sorted(append(ids, live)...)) || b.Redelivered {
		t.Errorf("the next one gives %+v", b)
	}
}

// S1-07, G1: clear, reset, shutdown and close are the same sweep of everything
// in the session, and of nothing else.
func TestS1_07_EveryEndSweepsAll(t *testing.T) {
	s := open(t, Config{})
	other := sh("sleep 600")
	other.Session = "other"
	spared := mustStart(t, s, other)
	for name, end := range map[string]func(context.Context, string, wire.EndSession, Caller) (*wire.SessionReport, error){
		"clear": s.ClearSession, "reset": s.ResetSession, "shutdown": s.ShutdownSession, "close": s.CloseSession,
	} {
		req := sh("sleep 600 & echo up; wait")
		req.Session = "s-" + name
		service := req
		service.Lease = LeaseService
		a, b := mustStart(t, s, req), mustStart(t, s, service)
		if _, err := s.WaitOutput(t.Context(), string(a.HandleID), "", wire.WaitOutput{Pattern: "up"}); err != nil {
			t.Fatal(err)
		}
		rep, err := end(t.Context(), req.Session, wire.EndSession{}, nobodyAsked)
		if err != nil || !slices.Equal(rep.Ended, sorted(a.HandleID, b.HandleID)) || !slices.Equal(rep.Dropped, []handles.ID{a.HandleID}) || len(rep.StillRunning) > 0 {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
		if livesStill(a.PID) || livesStill(b.PID) {
			t.Errorf("%s: something lives", name)
		}
		_, err = s.Start(t.Context(), req)
		if closes := name == "shutdown" || name == "close"; closes != errors.Is(err, handles.ErrClosed) {
			t.Errorf("%s: a start afterwards: %v", name, err)
		}
	}
	if !livesStill(spared.PID) {
		t.Error("another session's was ended")
	}
}

// Who asks for an end and leaves before it has come hurries nothing: the grace is
// the command's. What was begun is done all the same.
func TestWhoLeavesHurriesNothing(t *testing.T) {
	for name, end := range map[string]func(*Supervisor, context.Context) error{
		"close": func(s *Supervisor, ctx context.Context) error {
			_, err := s.CloseSession(ctx, "t", wire.EndSession{}, nobodyAsked)
			return err
		},
		"scope": func(s *Supervisor, ctx context.Context) error {
			_, err := s.CancelScope(ctx, "t", "g", wire.EndSession{})
			return err
		},
		"daemon": func(s *Supervisor, ctx context.Context) error {
			rep, err := s.ShutdownAll(ctx, wire.Shutdown{})
			if err == nil && len(rep.Ended) != 1 {
				err = errors.New("it was not waited for")
			}
			return err
		},
	} {
		s := open(t, Config{})
		if _, err := s.OpenScope(t.Context(), "t", handles.Scope{Name: "g"}); err != nil {
			t.Fatal(err)
		}
		req := sh("trap 'read x; exit 0' TERM; echo up; while :; do sleep 0.02; done")
		req.Stdin, req.Scope, req.GraceMS = "pipe", "g", new(int64)
		*req.GraceMS = 600_000
		id := mustStart(t, s, req).HandleID
		if w, err := s.WaitOutput(t.Context(), string(id), "", wire.WaitOutput{Pattern: "up"}); err != nil || w.Status != wire.Matched {
			t.Fatal(w, err)
		}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- end(s, ctx) }() // ends with ctx, or with the run
		awaitStatus(t, s, id, handles.Stopping)
		leave()
		if name != "daemon" {
			if err := <-left; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := s.Send(t.Context(), string(id), "", nil, true); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if rec := mustWait(t, s, id); rec.ExitCode == nil || *rec.ExitCode != 0 || !rec.Graceful {
			t.Errorf("%s: %s, signal %s", name, rec.Status, rec.Signal)
		}
		if name == "daemon" {
			if err := <-left; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Who starts something while the supervisor is being replaced is to ask again, not
// told that the daemon ends.
func TestStartWhileReplaced(t *testing.T) {
	s := open(t, Config{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(t.Context(), sh("exit 0")); !errors.Is(err, handles.ErrStarting) {
		t.Errorf("got %v, want %v", err, handles.ErrStarting)
	}
	if _, err := s.OpenSession(t.Context(), wire.OpenSession{Name: "x"}, Caller{}); !errors.Is(err, handles.ErrStarting) {
		t.Errorf("got %v, want %v", err, handles.ErrStarting)
	}
}
