package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"procsup/supervisor/wire"
)

// A process that is asked to go away is told so when its answer is complete: it
// may be gone the next moment (found by test/chaos, TestModelOfADaemon).
func TestAnswerComesBeforeTheEnd(t *testing.T) {
	d := New(newSupervisor(t))
	w := &watched{ResponseRecorder: httptest.NewRecorder(), d: d}
	r := httptest.NewRequest("POST", wire.PathShutdown, strings.NewReader(`{"replace":true}`))
	s := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { // who asks is known from a connection
		d.ServeHTTP(w, r.WithContext(q.Context()))
	}))
	s.call(t, "GET", "/", "", nil)
	if w.early || !w.Flushed || !strings.Contains(w.Body.String(), "accepted") || w.Header().Get("Content-Length") == "" {
		t.Errorf("early=%v flushed=%v, %v %q", w.early, w.Flushed, w.Header(), w.Body)
	}
	if req := <-d.Requests(); !req.Replace {
		t.Errorf("passed on: %+v", req)
	}
}

// watched looks whether the request was passed on before the answer.
type watched struct {
	*httptest.ResponseRecorder
	d     *Door
	early bool
}

func (w *watched) FlushError() error {
	w.early = len(w.d.requests) > 0
	w.Flush()
	return nil
}
