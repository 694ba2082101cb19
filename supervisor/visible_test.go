package supervisor

import (
	"runtime"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// An end is seen when it is durable and owed, not a moment before: who waits for
// it just then would get it without a batch, and the inbox would give it again.
func TestEndIsOwedBeforeItIsSeen(t *testing.T) {
	written, goOn := make(chan handles.ID, 1), make(chan struct{})
	s := open(t, Config{Hooks: &Hooks{At: func(point string, id handles.ID) {
		if point == "written" {
			written <- id
			<-goOn
		}
	}}})
	req := sh("exit 3")
	req.Session, req.Lease = "agent", LeaseAwaited
	mustStart(t, s, req)
	id := <-written
	waited := make(chan *wire.Waited, 1)
	go func() { // ends when the end is owed
		w, err := s.WaitTake(t.Context(), string(id), "", time.Millisecond, Caller{})
		if err != nil {
			t.Error(err)
		}
		waited <- w
	}()
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end) && !t.Failed(); { // room for an answer that must not come
		runtime.Gosched()
		select {
		case w := <-waited:
			t.Errorf("seen: %s, batch %q", w.Record.Status, w.Batch)
			waited <- w // to go on
		default:
		}
	}
	close(goOn)
	w := <-waited
	if w == nil || w.Record.Status != handles.Failed || w.Batch == "" {
		t.Fatalf("%+v", w)
	}
	if _, err := s.Acknowledge(t.Context(), "agent", wire.Acknowledge{Batch: w.Batch}); err != nil {
		t.Error(err)
	}
	if b, err := s.Take(t.Context(), "agent", wire.Take{}, Caller{Reader: "another"}); err != nil || b.Count != 0 {
		t.Errorf("given again: %+v, %v", b, err)
	}
}
