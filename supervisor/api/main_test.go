package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"procsup/handles"
	"procsup/supervisor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a handler behind a real socket, and a client of the standard
// library: the API must not need ours.
type served struct {
	socket string
	http   *http.Client
}

func serve(t testing.TB, h http.Handler) *served {
	t.Helper()
	dir, err := os.MkdirTemp("", "ps") // a short path: sockets need one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv, done := &http.Server{Handler: h, ConnContext: ConnContext, MaxHeaderBytes: 1 << 10, DisableGeneralOptionsHandler: true}, make(chan struct{})
	go func() { // ends with the server
		defer close(done)
		_ = srv.Serve(Listener(l))
	}()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		srv.Close()
		<-done
	})
	return &served{socket: socket, http: &http.Client{Transport: tr}}
}

// newSupervisor is a real one without a keeper.
func newSupervisor(t testing.TB) *supervisor.Supervisor {
	t.Helper()
	s, err := supervisor.Open(context.Background(), supervisor.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// call makes a request and decodes the answer, whatever its status, into out.
func (s *served) call(t testing.TB, method, target, body string, out any) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://procsup"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			t.Fatalf("%s %s: %d %q: %v", method, target, res.StatusCode, b, err)
		}
	}
	res.Body = io.NopCloser(bytes.NewReader(b))
	return res
}

// refused checks that a request is refused with a code, and with the status
// that goes with it.
func (s *served) refused(t testing.TB, method, target, body string, code handles.Code, status int) handles.Error {
	t.Helper()
	var e handles.Error
	res := s.call(t, method, target, body, &e)
	if e.Code != code || res.StatusCode != status || e.Message == "" {
		t.Errorf("%s %s: got %d %+v, want %d %s and a message", method, target, res.StatusCode, e, status, code)
	}
	if ct := res.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("%s %s: content type %q", method, target, ct)
	}
	return e
}

// startJSON is the body of a start that does not depend on our environment.
func startJSON(script string, more string) string {
	b, _ := json.Marshal([]string{"/bin/sh", "-c", script})
	return `{"command":` + string(b) + `,"env":["PATH=/usr/bin:/bin"]` + more + `}`
}

const long = time.Minute
