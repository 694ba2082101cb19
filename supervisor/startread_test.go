package supervisor

import (
	"runtime"
	"testing"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// Who saw a handle in a list may ask for its output before its command runs:
// the wait is for its start, and sees no half-made run.
func TestOutputIsAwaitedBeforeTheStart(t *testing.T) {
	admitted, goOn := make(chan handles.ID, 1), make(chan struct{})
	s := open(t, Config{Hooks: &Hooks{At: func(point string, id handles.ID) {
		if point == "admitted" {
			admitted <- id
			<-goOn
		}
	}}})
	started := make(chan error, 1)
	go func() { // ends with the start
		_, err := s.Start(t.Context(), sh("echo up; sleep 600"))
		started <- err
	}()
	id := <-admitted
	type answer struct {
		w   *wire.OutputWaited
		err error
	}
	waited := make(chan answer, 1)
	go func() { // ends with the match
		w, err := s.WaitOutput(t.Context(), string(id), "", wire.WaitOutput{Pattern: "up"})
		waited <- answer{w, err}
	}()
	if rec, err := s.Show(t.Context(), string(id), ""); err != nil || rec.Status.Terminal() {
		t.Errorf("%+v, %v", rec, err)
	}
	for range 1000 { // room for an answer that must not come
		runtime.Gosched()
		select {
		case a := <-waited:
			t.Fatalf("it did not wait: %+v, %v", a.w, a.err)
		default:
		}
	}
	close(goOn)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if a := <-waited; a.err != nil || a.w.Status != wire.Matched {
		t.Errorf("%+v, %v", a.w, a.err)
	}
}
