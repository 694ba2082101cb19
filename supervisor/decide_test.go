package supervisor

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"sync"
	"testing"
	"time"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/supervisor/outcome"
	"procsup/supervisor/wire"
)

// gate holds a run at one point until it is opened.
type gate struct {
	point   string
	reached chan handles.ID
	open    chan struct{}
	once    sync.Once
}

func newGate(point string) *gate {
	return &gate{point: point, reached: make(chan handles.ID, 1), open: make(chan struct{})}
}

func (g *gate) hooks() *Hooks {
	return &Hooks{At: func(point string, id handles.ID) {
		if point != g.point {
			return
		}
		g.once.Do(func() {
			g.reached <- id
			<-g.open
		})
	}}
}

// stops are the stop rows of a run.
func stops(t *testing.T, s *Supervisor, id handles.ID) []map[string]any {
	t.Helper()
	es, err := s.journal.Entries(0, string(id), 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for _, e := range es {
		if e.Kind != "stop" {
			continue
		}
		var body struct{ Stop map[string]any }
		if err := json.Unmarshal(e.Body, &body); err != nil {
			t.Fatal(err)
		}
		out = append(out, body.Stop)
	}
	return out
}

var kinds = map[string]decision{
	"session_close": {kind: "session_close", cause: handles.CauseSession, by: "user", reason: "close"},
	"evict":         {kind: "evict", cause: handles.CauseShutdown, by: "host", reason: "drain"},
	"start_abort":   {kind: "start_abort", cause: handles.CauseAborted, by: "host", reason: "never ready"},
}

// S4-34, S4-01, S4-02, S4-13, S4-16, S4-22, S4-36: three kinds of stop at six
// moments write a row that names the run exactly when work is in flight.
func TestS4_34_StopMatrix(t *testing.T) {
	for _, c := range []struct {
		name, point, script string
		write               bool
	}{
		{"running and saved", "", "sleep 600", true},
		{"spawned, not saved", "spawned", "sleep 600", true},
		{"accepted, not spawned", "admitted", "sleep 600", true},
		{"registered, not spawned", "registered", "sleep 600", true},
		{"over, end on its way", "settle", "exit 0", false},
		{"over", "over", "exit 0", false},
	} {
		for kind, d := range kinds {
			t.Run(c.name+" "+kind, func(t *testing.T) {
				g := newGate(c.point)
				s := open(t, Config{Hooks: g.hooks()})
				answered := make(chan *wire.Started, 1)
				go func() { // ends with the start
					a, err := s.Start(t.Context(), sh(c.script))
					if err != nil {
						t.Error(err)
					}
					answered <- a
				}()
				r, id := at(t, s, g, answered)
				var st *stop
				cut := false
				if r != nil {
					st, cut = s.decide(r, d)
				}
				close(g.open)
				if cut != c.write {
					t.Fatalf("cut %v, want %v", cut, c.write)
				}
				rec := mustWait(t, s, id)
				rows := stops(t, s, id)
				if len(rows) > 0 != c.write {
					t.Fatalf("stop rows %v", rows)
				}
				if !c.write {
					if rec.Status != handles.Completed || rec.Stop != nil {
						t.Errorf("own ending was changed: %+v", rec)
					}
					return
				}
				if rows[0]["cuts"] != string(id) || rows[0]["kind"] != kind || rows[0]["by"] != d.by {
					t.Errorf("row %v", rows[0])
				}
				wantEnding := map[string]string{"user": "interrupted", "host": "failed"}[d.by] // S4-03, S4-04, S4-38
				if rec.Ending != wantEnding || rec.Stop == nil || rec.Stop.ID != st.id || rec.Cause != d.cause {
					t.Errorf("record %+v, stop %+v", rec, rec.Stop)
				}
			})
		}
	}
}

// at returns the run once it stands at the gate's point.
func at(t *testing.T, s *Supervisor, g *gate, answered chan *wire.Started) (*run, handles.ID) {
	t.Helper()
	switch g.point {
	case "", "over":
		a := <-answered
		if g.point == "over" {
			mustWait(t, s, a.HandleID)
		}
		return s.live(a.HandleID), a.HandleID
	}
	id := <-g.reached
	return s.live(id), id
}

// S4-10, S4-25, S4-27, S1-21: racing a stop against an end gives one of two
// stories, never a mix: a completed run has no stop row, a killed one has a row
// that is older than its end.
func TestS4_10_StopRacesEnd(t *testing.T) {
	s := open(t, Config{})
	both := map[handles.Status]int{}
	for range 150 {
		a := mustStart(t, s, wire.Start{Command: []string{"/bin/true"}})
		c, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{})
		if err != nil {
			t.Fatal(err)
		}
		rec := mustWait(t, s, a.HandleID)
		rows := stops(t, s, a.HandleID)
		both[rec.Status]++
		switch rec.Status {
		case handles.Completed:
			if len(rows) != 0 || c.Cancelled || rec.Stop != nil {
				t.Fatalf("completed with stop rows %v, cancelled %v", rows, c.Cancelled)
			}
		case handles.Killed:
			if len(rows) != 1 || !c.Cancelled {
				t.Fatalf("killed with stop rows %v, cancelled %v", rows, c.Cancelled)
			}
		default:
			t.Fatalf("record %+v", rec)
		}
	}
	t.Logf("endings: %v", both)
}

// S4-29, S4-30, S4-39: an end that was seen before the stop stays its own, even
// if it is written later.
func TestS4_30_EndSeenBeforeStop(t *testing.T) {
	g := newGate("settle")
	s := open(t, Config{Hooks: g.hooks()})
	a := mustStart(t, s, sh("kill -SEGV $$"))
	<-g.reached
	c, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{NoWait: true})
	if err != nil || c.Cancelled || c.Stopping != !c.Record.Status.Terminal() || c.Record.Status == handles.Stopping || c.Record.Stop != nil {
		t.Errorf("cancel %+v, record %+v, %v", c, c.Record, err)
	}
	close(g.open)
	if c, err = s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{}); err != nil {
		t.Fatal(err)
	}
	if c.Cancelled || c.Record.Status != handles.Failed || c.Record.Signal != "SEGV" || c.Record.Ending != "" {
		t.Errorf("cancel %+v, record %+v", c, c.Record)
	}
	if rows := stops(t, s, a.HandleID); len(rows) != 0 {
		t.Errorf("stop rows %v", rows)
	}
}

// G14, S4-03: a stop whose ladder is over before the leader's end was marked
// waits for that mark: the ending is what was seen, never a zero exit.
func TestG14_StopWaitsForTheMark(t *testing.T) {
	g := newGate("observe")
	s := open(t, Config{Hooks: g.hooks()})
	a := mustStart(t, s, sh("sleep 600"))
	r := s.live(a.HandleID)
	s.decide(r, kinds["evict"])
	<-g.reached // the leader has ended, and nobody was told
	<-r.group.Done()
	select {
	case <-r.over:
		t.Error("the end was recorded before it was seen")
	case <-time.After(100 * time.Millisecond): // time enough for a ladder that has nothing left to end
	}
	close(g.open)
	rec := mustWait(t, s, a.HandleID)
	if rec.Signal != "TERM" || rec.ExitCode != nil || rec.EndedAt.IsZero() {
		t.Errorf("record %+v", rec)
	}
}

// S4-17, S4-18, S4-35: a person's stop holds over the host's that comes later;
// a person's close always writes its own row. S4-19: not over another run.
func TestS4_17_PersonsStopHolds(t *testing.T) {
	for _, point := range []string{"", "admitted"} {
		t.Run("at "+point, func(t *testing.T) {
			g := newGate(point)
			s := open(t, Config{Hooks: g.hooks()})
			answered := make(chan *wire.Started, 1)
			go func() { // ends with the start
				a, err := s.Start(t.Context(), sh("trap '' TERM; echo up; while :; do sleep 1; done"))
				if err != nil {
					t.Error(err)
				}
				answered <- a
			}()
			r, id := at(t, s, g, answered)
			grace := int64(50)
			d, err := cancelDecision(r, wire.Cancel{GraceMS: &grace})
			if err != nil {
				t.Fatal(err)
			}
			if _, cut := s.decide(r, d); !cut { // S4-18
				close(g.open)
				t.Fatal("a person's stop did nothing")
			}
			if _, cut := s.decide(r, kinds["evict"]); cut {
				t.Error("the host's stop cut what a person had cut")
			}
			if _, cut := s.decide(r, kinds["session_close"]); !cut {
				t.Error("a person's close wrote nothing")
			}
			close(g.open)
			rec := mustWait(t, s, id)
			if rec.Ending != "interrupted" || rec.Cause != handles.CauseCancelled {
				t.Errorf("record %+v", rec)
			}
			if rows := stops(t, s, id); len(rows) != 2 || rows[1]["kind"] != "session_close" {
				t.Errorf("stop rows %v", rows)
			}
			next := mustStart(t, s, sh("sleep 600"))
			if _, cut := s.decide(s.live(next.HandleID), kinds["evict"]); !cut { // S4-19
				t.Fatal("a person's stop of another run held over the host's")
			}
			if rec := mustWait(t, s, next.HandleID); rec.Ending != "failed" || rec.Stop.By != "host" {
				t.Errorf("the next run: %+v", rec)
			}
		})
	}
}

// S4-43, S4-48, S4-14: what an earlier generation admitted is not in flight.
func TestS4_43_Fence(t *testing.T) {
	for _, c := range []struct {
		p          phase
		generation int
		want       bool
	}{{admitted, 2, true}, {running, 2, true}, {observed, 2, false}, {ended, 2, false}, {admitted, 1, false}, {running, 1, false}} {
		if got := workInFlight(c.p, c.generation, 2); got != c.want {
			t.Errorf("phase %d of generation %d: %v, want %v", c.p, c.generation, got, c.want)
		}
	}
}

// S4-29: which came first is told by the numbers of the journal, whatever the
// clock said at the time.
func TestS4_29_OrderIsNotTheClocks(t *testing.T) {
	for name, c := range map[string]struct {
		stop     stop
		p        phase
		observed int64
		want     bool
	}{
		"the end was not seen yet":                   {stop{seq: 7}, running, 0, true},
		"the stop came first":                        {stop{seq: 7, at: time.Now()}, observed, 8, true},
		"the stop came first, the clock was ahead":   {stop{seq: 7, at: time.Now().Add(time.Hour)}, observed, 8, true},
		"the end came first":                         {stop{seq: 7, at: time.Now()}, observed, 6, false},
		"the end came first, the clock was set back": {stop{seq: 7, at: time.Now().Add(-time.Hour)}, observed, 6, false},
	} {
		if got := cameFirst(&c.stop, c.p, c.observed); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// S4-32: only a stop that took, of a run that is over, is one that was carried
// out; and only for the request that made it.
func TestS4_32_ConfirmedMeansNothingIsLeft(t *testing.T) {
	record := func(status handles.Status, answer string) *handles.Record {
		return &handles.Record{Status: status, Stop: &handles.Stop{ID: "s", Answer: answer}}
	}
	for name, c := range map[string]struct {
		rec  *handles.Record
		stop string
		want bool
	}{
		"took":                        {record(handles.Killed, "took"), "s", true},
		"before it was started":       {record(handles.Cancelled, "took"), "s", true},
		"refused":                     {record(handles.Killed, "refused"), "s", false},
		"something is left":           {record(handles.Killed, "unconfirmed"), "s", false},
		"not over":                    {record(handles.Stopping, "took"), "s", false},
		"nobody knows":                {record(handles.Lost, "took"), "s", false},
		"another stop":                {record(handles.Killed, "took"), "t", false},
		"the request stopped nothing": {record(handles.Killed, "took"), "", false},
		"its own ending":              {&handles.Record{Status: handles.Completed}, "s", false},
	} {
		if got := confirmed(c.rec, c.stop); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// S4-32: a stop that was refused is not counted as ours.
func TestS4_32_RefusedStop(t *testing.T) {
	rep := pgroup.Report{Signals: []pgroup.Sent{{Signal: 15, Err: handles.ErrConflict}}, Survivors: []pgroup.Member{{PID: 9}}}
	if got := outcome.Answer(rep); got != "refused" {
		t.Errorf("got %s", got)
	}
	rep.Signals = append(rep.Signals, pgroup.Sent{Signal: 9})
	if got := outcome.Answer(rep); got != "unconfirmed" {
		t.Errorf("got %s", got)
	}
	rep.Survivors = nil
	if got := outcome.Answer(rep); got != "took" {
		t.Errorf("got %s", got)
	}
}

// S4-05, S4-20, S4-23, S4-42, S4-45: the decision is one function with one
// caller, and neither it nor its caller waits, sleeps or looks at a clock to
// decide.
func TestS4_42_OneDecisionWithoutWaiting(t *testing.T) {
	pkgs, err := parser.ParseDir(token.NewFileSet(), ".", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	callers := map[string]int{}
	for name, f := range pkgs["supervisor"].Files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || len(name) > 8 && name[len(name)-8:] == "_test.go" {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "workInFlight" {
						callers[fn.Name.Name]++
					}
				case *ast.SelectStmt, *ast.UnaryExpr:
					waits := true
					if u, ok := n.(*ast.UnaryExpr); ok {
						waits = u.Op == token.ARROW
					}
					if waits && (fn.Name.Name == "decide" || fn.Name.Name == "workInFlight" || fn.Name.Name == "holds") {
						t.Errorf("%s waits", fn.Name.Name)
					}
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && n.Sel.Name != "Now" && fn.Name.Name == "decide" {
						t.Errorf("decide uses time.%s", n.Sel.Name)
					}
				}
				return true
			})
		}
	}
	if len(callers) != 1 || callers["decide"] != 1 {
		t.Errorf("workInFlight is called by %v, want decide alone", callers)
	}
}
