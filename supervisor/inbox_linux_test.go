package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

func take(t *testing.T, s *Supervisor, who Caller, most int) *wire.Batch {
	t.Helper()
	b, err := s.Take(t.Context(), "t", wire.Take{Max: most}, who)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func settle(t *testing.T, s *Supervisor, batch, outcome string) *wire.Acknowledged {
	t.Helper()
	a, err := s.Acknowledge(t.Context(), "t", wire.Acknowledge{Batch: batch, Outcome: outcome})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func handlesOf(b *wire.Batch) (ids []handles.ID) {
	for _, c := range b.Completions {
		ids = append(ids, c.HandleID)
	}
	return ids
}

// done starts commands and returns their ids, sorted, when all have ended.
func done(t *testing.T, s *Supervisor, scripts ...string) (ids []handles.ID) {
	t.Helper()
	for _, script := range scripts {
		ids = append(ids, mustStart(t, s, sh(script)).HandleID)
	}
	for _, id := range ids {
		mustWait(t, s, id)
	}
	return sorted(ids...)
}

// S1-35, S2-28: all that is owed is one batch in the order of handle ids;
// afterwards nothing is pending. Two readers at once get all of it, none twice.
func TestS1_35_OneBatch(t *testing.T) {
	s := open(t, Config{})
	ids := done(t, s, "exit 0", "exit 1", "no-such-command-here")
	b := take(t, s, reading(t, "a"), 0)
	if b.Event != wire.CompletedKey || b.Count != 3 || !slices.Equal(handlesOf(b), ids) || b.Redelivered {
		t.Fatalf("batch %+v, want %v", b, ids)
	}
	for _, c := range b.Completions {
		if c.Kind != "tool_result" || c.Result == nil || c.Operation != "command" {
			t.Errorf("%+v", c)
		}
	}
	if a := settle(t, s, b.Batch, ""); a.Count != 3 || a.Pending != 0 {
		t.Errorf("acknowledged %+v", a)
	}
	if b := take(t, s, reading(t, "a"), 0); b.Event != wire.NothingKey || b.Count != 0 || b.Batch != "" {
		t.Errorf("again: %+v", b)
	}
	if a := settle(t, s, b.Batch, ""); a.Count != 0 { // it may be repeated
		t.Errorf("acknowledged again: %+v", a)
	}
	ids = done(t, s, "exit 0", "exit 0", "exit 0", "exit 0", "exit 0", "exit 0")
	var mu sync.Mutex
	var got []handles.ID
	var all sync.WaitGroup
	for _, reader := range []string{"a", "b", "c"} {
		all.Go(func() {
			for b := take(t, s, reading(t, reader), 2); b.Count > 0; b = take(t, s, reading(t, reader), 2) {
				settle(t, s, b.Batch, "delivered")
				mu.Lock()
				got = append(got, handlesOf(b)...)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if !slices.Equal(sorted(got...), ids) {
		t.Errorf("three readers got %v, want %v", got, ids)
	}
	for _, id := range ids {
		if rec := mustWait(t, s, id); rec.Delivery != handles.DeliveryDelivered {
			t.Errorf("%s is %s", id, rec.Delivery)
		}
	}
}

// S1-31: what was delivered can be read, newest first.
func TestS1_31_Deliveries(t *testing.T) {
	s := open(t, Config{})
	for _, script := range []string{"exit 0", "exit 1"} {
		done(t, s, script)
		settle(t, s, take(t, s, nobodyAsked, 0).Batch, "")
	}
	d, err := s.Deliveries(t.Context(), "t", 0)
	if err != nil || len(d.Deliveries) != 2 || !d.Deliveries[0].At.After(d.Deliveries[1].At) || len(d.Deliveries[0].Handles) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := s.Deliveries(t.Context(), "t", 1); err != nil || len(d.Deliveries) != 1 {
		t.Errorf("one of them: %+v, %v", d, err)
	}
}

// S1-31: many deliveries are read in parts, and who acknowledges again what
// was delivered just now does not make us read all of them.
func TestS1_31_ManyDeliveries(t *testing.T) {
	s := open(t, Config{})
	const many, each = 800, 50
	var batches []string
	for i := range many {
		mustStart(t, s, sh(fmt.Sprint("exit ", i%100)))
		if i%each == each-1 {
			b := s.takeAll(t, each)
			batches = append(batches, b...)
		}
	}
	d, err := s.Deliveries(t.Context(), "t", 0)
	if err != nil || len(d.Deliveries) != len(batches) {
		t.Fatalf("%d batches, %v, want %d", len(d.Deliveries), err, len(batches))
	}
	ends := map[handles.ID]bool{}
	for i, x := range d.Deliveries {
		if want := batches[len(batches)-1-i]; x.Batch != want {
			t.Errorf("batch %d is %s, want %s", i, x.Batch, want)
		}
		for _, id := range x.Handles {
			ends[id] = true
		}
	}
	if len(ends) != many {
		t.Errorf("%d ends, want %d", len(ends), many)
	}
	again := func(batch string) float64 {
		return testing.AllocsPerRun(3, func() { settle(t, s, batch, "") })
	}
	if newest, oldest := again(batches[len(batches)-1]), again(batches[0]); 2*newest > oldest {
		t.Errorf("%v allocations for the newest batch, %v for the oldest", newest, oldest)
	}
	if _, err := s.Acknowledge(t.Context(), "t", wire.Acknowledge{Batch: "none"}); !errors.Is(err, handles.ErrNotFound) {
		t.Errorf("a batch that never was: %v", err)
	}
}

// takeAll takes and acknowledges so many ends, as they come.
func (s *Supervisor) takeAll(t *testing.T, n int) (batches []string) {
	t.Helper()
	for n > 0 {
		b, err := s.Take(t.Context(), "t", wire.Take{WaitMS: 10_000}, nobodyAsked)
		if err != nil || b.Count == 0 {
			t.Fatalf("%d ends do not come: %+v, %v", n, b, err)
		}
		settle(t, s, b.Batch, "")
		batches, n = append(batches, b.Batch), n-b.Count
	}
	return batches
}

// S1-27: a hint may be stale: somebody else was faster, and that is no error.
func TestS1_27_SomebodyElseWasFaster(t *testing.T) {
	s := open(t, Config{})
	n := listen(t, s, "t", 0)
	done(t, s, "exit 0")
	n.until(wire.NoticeReady)
	settle(t, s, take(t, s, reading(t, "other"), 0).Batch, "")
	if b := take(t, s, reading(t, "me"), 0); b.Event != wire.NothingKey {
		t.Errorf("%+v", b)
	}
}

// D8: what a reader took and did not acknowledge is its own again, marked, and
// nobody else's while it lives; also after a restart.
func TestD8_UnacknowledgedIsOfferedAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	done(t, s, "exit 0", "exit 0")
	me := reading(t, "me")
	b := take(t, s, me, 0)
	if other := take(t, s, reading(t, "other"), 0); other.Count != 0 {
		t.Errorf("another reader got %+v", other)
	}
	again := take(t, s, me, 0)
	if again.Batch != b.Batch || !again.Redelivered || !again.Completions[0].Redelivered || again.Count != 2 {
		t.Errorf("again: %+v", again)
	}
	if n := pending(t, s); n != 2 {
		t.Errorf("%d pending while taken, want 2", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	if other := take(t, s, reading(t, "other"), 0); other.Count != 0 {
		t.Errorf("after a restart another reader got %+v", other)
	}
	if again := take(t, s, me, 0); again.Batch != b.Batch || !again.Redelivered {
		t.Errorf("after a restart: %+v", again)
	}
	settle(t, s, b.Batch, "")
	if n := pending(t, s); n != 0 {
		t.Errorf("%d pending", n)
	}
}

// S1-37: what a consumer did not accept goes back, and is marked.
func TestS1_37_ReturnedGoesBack(t *testing.T) {
	s := open(t, Config{})
	done(t, s, "exit 0", "exit 0", "exit 0")
	b := take(t, s, nobodyAsked, 2)
	if a := settle(t, s, b.Batch, "returned"); b.Count != 2 || a.Count != 2 || a.Pending != 3 {
		t.Errorf("%+v of %+v", a, b)
	}
	again := take(t, s, reading(t, "other"), 0)
	if again.Count != 3 || again.Batch == b.Batch {
		t.Errorf("again: %+v", again)
	}
	for _, c := range again.Completions {
		if want := slices.Contains(handlesOf(b), c.HandleID); c.Redelivered != want {
			t.Errorf("%s: redelivered %v", c.HandleID, c.Redelivered)
		}
	}
	if _, err := s.Acknowledge(t.Context(), "t", wire.Acknowledge{Batch: "bat-none"}); !errors.Is(err, handles.ErrNotFound) {
		t.Errorf("a batch that never was: %v", err)
	}
}

// G20, S2-09: waiting for an end takes it: it is delivered once, by one route.
func TestG20_WaitTakesTheEnd(t *testing.T) {
	s := open(t, Config{})
	me := reading(t, "me")
	for _, id := range done(t, s, "exit 1", "exit 2", "exit 3") {
		w, err := s.WaitTake(t.Context(), string(id), "", 0, me)
		if err != nil || w.Batch == "" {
			t.Fatalf("%+v, %v", w, err)
		}
		settle(t, s, w.Batch, "")
	}
	if b := take(t, s, me, 0); b.Count != 0 {
		t.Errorf("announced again: %+v", b)
	}
	id := mustStart(t, s, sh("read x")).HandleID // one that is waited for while it runs, by two
	first, err := s.WaitTake(t.Context(), string(id), "", 0, me)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := s.WaitTake(t.Context(), string(id), "", 0, reading(t, "other")); err != nil || second.Batch != "" || second.Record.Status != first.Record.Status {
		t.Errorf("the second got %+v, %v", second, err)
	}
}

// S1-38: nothing starts by itself because something has ended.
func TestS1_38_NothingStartsByItself(t *testing.T) {
	s := open(t, Config{})
	done(t, s, "exit 0", "exit 1", "exit 2")
	take(t, s, nobodyAsked, 0)
	if l, err := s.List(t.Context(), journal.Filter{}); err != nil || len(l.Handles) != 3 {
		t.Errorf("%d handles, %v", len(l.Handles), err)
	}
}

// S1-39, S1-40: what was expected and has not reached its reader is named; a
// start that was refused has no id that could be expected.
func TestS1_39_Expected(t *testing.T) {
	s := open(t, Config{})
	ids := done(t, s, "exit 0", "exit 1")
	running := mustStart(t, s, sh("sleep 600")).HandleID
	idle := func(expect ...handles.ID) *wire.Idle {
		i, err := s.Idle(t.Context(), "t", 0, expect)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	all := append(slices.Clone(ids), running, "hto-UNKNOWN")
	if i := idle(all...); !slices.Equal(i.Missing, all) {
		t.Errorf("before: %+v", i)
	}
	b := take(t, s, nobodyAsked, 1)
	settle(t, s, b.Batch, "")
	if i := idle(ids...); len(i.Missing) != 1 || i.Missing[0] == b.Completions[0].HandleID {
		t.Errorf("after one: %+v", i)
	}
	if i := idle(b.Completions[0].HandleID); len(i.Missing) != 0 || len(i.Unexpected) != 1 || i.Unexpected[0] == b.Completions[0].HandleID {
		t.Errorf("one id left out: %+v", i)
	}
	refused := sh("exit 0")
	refused.Scope = "none"
	if a, err := s.Start(t.Context(), refused); err == nil || a != nil {
		t.Errorf("a refused start answered %+v", a)
	}
}

// S1-51: the place of an end is kept from the start on: a full inbox refuses a
// start before anything is spawned, and drops nothing. Services need no place.
func TestS1_51_FullInboxRefuses(t *testing.T) {
	s := open(t, Config{})
	for range wire.InboxSize - 1 {
		a, err := s.Start(t.Context(), wire.Start{Command: []string{"/no/such"}, Session: "t"}) // ends at once
		if err != nil || a.Error == "" {
			t.Fatal(a, err)
		}
	}
	live := mustStart(t, s, sh("sleep 600")) // has not ended, and has its place
	before, err := s.List(t.Context(), journal.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err := s.Start(t.Context(), sh("exit 0"))
		if !errors.Is(err, handles.ErrInboxFull) || !strings.Contains(err.Error(), "procsup continue") {
			t.Fatalf("start: %v", err)
		}
	}
	if after, err := s.List(t.Context(), journal.Filter{}); err != nil || len(after.Handles) != len(before.Handles) || len(after.Handles) != wire.InboxSize {
		t.Errorf("%d handles, %v", len(after.Handles), err)
	}
	service := sh("exit 0")
	service.Lease = LeaseService
	mustWait(t, s, mustStart(t, s, service).HandleID)
	b := take(t, s, nobodyAsked, 0)
	if b.Count != wire.InboxSize-1 {
		t.Errorf("%d are there", b.Count)
	}
	if _, err := s.Start(t.Context(), sh("exit 0")); !errors.Is(err, handles.ErrInboxFull) {
		t.Errorf("start while they are taken: %v", err)
	}
	settle(t, s, b.Batch, "")
	if _, err := s.Cancel(t.Context(), string(live.HandleID), "", wire.Cancel{}); err != nil {
		t.Fatal(err)
	}
	mustStart(t, s, sh("exit 0"))
}
