package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/supervisor/wire"
)

// finished lets commands end in the background and waits until their ends are
// owed.
func (r *rig) finished(a *agent, n int) (ids []string) {
	r.t.Helper()
	for i := range n {
		ids = append(ids, a.held(fmt.Sprintf("echo result %d", i)))
	}
	for _, h := range ids {
		must[handleView](a, "write_stdin", args{"handle": h, "text": "go\n"})
		if rec := r.ended(h); rec.Delivery != "pending" {
			r.t.Fatalf("%s: its end is %s", h, rec.Delivery)
		}
	}
	slices.Sort(ids)
	return ids
}

func idsOf(b takeOutput) (ids []string) {
	for _, v := range b.Finished {
		ids = append(ids, v.Handle)
	}
	return ids
}

// TestTakeOnce is rule S1-35 through MCP: all pending results as one batch,
// ordered by handle; again and marked until it is acknowledged, and not after.
func TestTakeOnce(t *testing.T) {
	r := newRig(t)
	a, b := r.connect(nil), r.connect(nil)
	mine, theirs := r.finished(a, 3), r.finished(b, 2)

	first, res := must[takeOutput](a, "take_finished", nil)
	if first.Count != 3 || first.Redelivered || !slices.Equal(idsOf(first), mine) {
		t.Fatalf("took %+v, want %v", first, mine)
	}
	for i := range 3 {
		if !strings.Contains(text(res), fmt.Sprintf("result %d", i)) {
			t.Errorf("result %d is not in %q", i, text(res))
		}
	}
	again, _ := must[takeOutput](a, "take_finished", nil)
	if again.Batch != first.Batch || !again.Redelivered || again.Count != 3 {
		t.Errorf("not acknowledged, so it comes again, marked: %+v", again)
	}
	if w, _ := must[takeOutput](b, "take_finished", nil); !slices.Equal(idsOf(w), theirs) {
		t.Errorf("another connection took %v, want its own %v", idsOf(w), theirs)
	}
	back, _ := must[ackOutput](a, "acknowledge", args{"batch": first.Batch, "returned": true})
	if back.Count != 3 || back.Pending != 3 {
		t.Errorf("returned: %+v", back)
	}
	fresh, _ := must[takeOutput](a, "take_finished", nil)
	if !slices.Equal(idsOf(fresh), mine) {
		t.Errorf("returned, so it is there again: %+v", fresh)
	}
	for range 2 { // it may be said twice
		if ack, _ := must[ackOutput](a, "acknowledge", args{"batch": fresh.Batch}); ack.Pending != 0 {
			t.Errorf("acknowledged: %+v", ack)
		}
	}
	if none, _ := must[takeOutput](a, "take_finished", nil); none.Count != 0 || none.Batch != "" {
		t.Errorf("acknowledged, and given again: %+v", none)
	}
}

// TestTwoTakesAtOnce: S1-35, the union is all, and nothing is in two batches.
func TestTwoTakesAtOnce(t *testing.T) {
	r := newRig(t)
	a := r.connect(nil)
	want := r.finished(a, 3)
	var mu sync.Mutex
	batchOf := map[string]string{}
	var takes sync.WaitGroup
	for range 4 {
		takes.Go(func() {
			var out takeOutput
			if _, err := a.call(t.Context(), "take_finished", nil, &out); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, v := range out.Finished {
				if b := batchOf[v.Handle]; b != "" && b != out.Batch {
					t.Errorf("%s is in %s and %s", v.Handle, b, out.Batch)
				}
				batchOf[v.Handle] = out.Batch
			}
		})
	}
	takes.Wait()
	if len(batchOf) != len(want) {
		t.Errorf("took %v, want %v", batchOf, want)
	}
}

// TestWaitDelivers: who waits for an end has it; take_finished does not give it.
func TestWaitDelivers(t *testing.T) {
	a := newRig(t).connect(nil)
	h := a.held("exit 5")
	must[handleView](a, "write_stdin", args{"handle": h, "text": "go\n"})
	if v, res := must[handleView](a, "wait", args{"handle": h}); v.ExitCode == nil || *v.ExitCode != 5 || !res.IsError {
		t.Errorf("%+v", v)
	}
	c := a.background("exec sleep 600")
	if v, res := must[handleView](a, "cancel", args{"handle": c, "grace_s": 1}); v.Cause != "cancelled" || res.IsError {
		t.Errorf("cancelled: %+v", v)
	}
	if b, _ := must[takeOutput](a, "take_finished", nil); b.Count != 0 {
		t.Errorf("delivered, and owed: %+v", b)
	}
	if v, res := must[handleView](a, "cancel", args{"handle": c}); v.Cause != "cancelled" || res.IsError || !strings.Contains(text(res), "had ended before") {
		t.Errorf("cancelled again: %s", text(res))
	}
	slow := a.background("exec sleep 600")
	if v, res := must[handleView](a, "wait", args{"handle": slow, "timeout_s": 0.02}); !v.Running || res.IsError {
		t.Errorf("still running: %s", text(res))
	}
}

// TestCancelledCalls: cancelling run_command ends its command; cancelling wait
// ends only the wait, and the end is delivered later.
func TestCancelledCalls(t *testing.T) {
	r := newRig(t)
	a := r.connect(nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { // ends with its call
		_, err := a.CallTool(ctx, &sdk.CallToolParams{Name: "run_command", Arguments: args{"command": "echo up; exec sleep 600", "name": "held"}})
		done <- err
	}()
	var held string
	for held == "" { // the daemon says when it is there
		l, _ := must[listOutput](a, "list", nil)
		for _, v := range l.Handles {
			held = v.Handle
		}
	}
	a.told(held, "up")
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled call has an answer")
	}
	if rec := r.ended(held); rec.Cause != "cancelled" || rec.Stop.Reason != "the call was cancelled" {
		t.Errorf("%s by %s: %+v", rec.Status, rec.Cause, rec.Stop)
	}

	slow := a.held("echo late")
	ctx, cancel = context.WithCancel(t.Context())
	waiting := make(chan string, 1)
	go func() {
		waiting <- "now"
		_, err := a.CallTool(ctx, &sdk.CallToolParams{Name: "wait", Arguments: args{"handle": slow}})
		done <- err
	}()
	<-waiting
	must[listOutput](a, "list", nil) // requests are read in order: the wait was, or is cancelled before
	cancel()
	<-done
	if v, _ := must[listOutput](a, "list", nil); len(v.Handles) != 1 {
		t.Fatalf("the command of a cancelled wait: %+v", v)
	}
	must[handleView](a, "write_stdin", args{"handle": slow, "text": "go\n"})
	r.ended(slow)
	b, _ := must[takeOutput](a, "take_finished", args{"wait_s": 10})
	if !slices.Equal(idsOf(b), []string{slow}) {
		t.Errorf("owed: %v, want %v", idsOf(b), slow)
	}
}

// TestGiveBack: an end that a cancelled call took comes back, whenever it was
// taken.
func TestGiveBack(t *testing.T) {
	r := newRig(t)
	r.start()
	s := newServer(t.Context(), Options{Socket: r.socket, State: r.state, Env: r.env, Dir: "/", Log: t.Output()})
	defer s.finish()
	a, err := reach(t.Context(), s, func() (*wire.Started, error) {
		return s.c.Start(t.Context(), wire.Start{Command: []string{"true"}, Env: r.env, Session: s.session, Lease: "awaited", NoStoreEnv: true})
	})
	if err != nil {
		t.Fatal(err)
	}
	r.ended(string(a.HandleID))
	w, err := s.c.WaitTake(t.Context(), string(a.HandleID), -1) // and the call that did so is gone
	if err != nil || w.Batch == "" {
		t.Fatalf("%+v %v", w, err)
	}
	done := s.taking(a.HandleID)
	_, none, err := s.takeFinished(t.Context(), nil, takeInput{})
	if err != nil || none.Count != 0 {
		t.Fatalf("taken by a call that goes on, and given twice: %+v %v", none, err)
	}
	done()
	_, out, err := s.takeFinished(t.Context(), nil, takeInput{})
	if err != nil || out.Count != 1 {
		t.Errorf("astray: %+v %v", out, err)
	}
}
