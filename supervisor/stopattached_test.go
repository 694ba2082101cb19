package supervisor

import (
	"context"
	"runtime"
	"testing"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// D3: stopping the daemon keeps ends owed, also those of a session whose
// connection it cuts itself.
func TestShutdownKeepsWhatAnAttachedSessionIsOwed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	ctx, leave := context.WithCancel(t.Context())
	opened, detached := make(chan struct{}), make(chan error, 1)
	go func() { // ends by leave
		detached <- s.Attach(ctx, wire.OpenSession{Name: "agent"}, Caller{}, func(*handles.Session) error {
			close(opened)
			return nil
		})
	}()
	<-opened
	req := sh("exec sleep 600")
	req.Session, req.Lease = "agent", LeaseAwaited
	a := mustStart(t, s, req)
	s.Shutdown(t.Context())
	leave() // as the door does, so that the server can end
	if err := <-detached; err != nil {
		t.Fatal(err)
	}
	for range 1000 { // room for an end of the session that must not come
		runtime.Gosched()
		s.mu.Lock()
		closed := s.sessions["agent"].closed()
		s.mu.Unlock()
		if closed {
			t.Fatal("the session is closed")
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, Config{Dir: dir})
	rec, err := next.Show(t.Context(), string(a.HandleID), "")
	if err != nil || rec.Cause != handles.CauseShutdown || rec.Delivery != handles.DeliveryPending {
		t.Errorf("%+v, %v", rec, err)
	}
}
