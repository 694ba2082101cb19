package api

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// connected is the context of a real connection of our own, as the door needs it.
func connected(f *testing.F) context.Context {
	l, err := net.Listen("unix", filepath.Join(f.TempDir(), "s"))
	if err != nil {
		f.Fatal(err)
	}
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	served, err := l.Accept()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close(); served.Close(); l.Close() })
	return ConnContext(context.Background(), served)
}

// FuzzRequest: any method, path, query, header and body of a daemon that still
// starts, so that nothing happens: the answer is typed and never of a fault of
// ours.
func FuzzRequest(f *testing.F) {
	ctx := connected(f)
	d := NewDoor()
	f.Add("POST", wire.PathHandles, "", "tok", `{"command":["x"],"env":["A=b"],"grace_ms":5}`)
	f.Add("POST", "/v1/sessions/x/take", "", "", `{"max":-1,"wait_ms":9223372036854775807}`)
	f.Add("GET", "/v1/handles/hto-/output", "from=-1&limit=x&follow=yes&stop=gap", "", "")
	f.Add("GET", "/v1/sessions/%2f/idle", "wait_ms=1e9&expect=,,,hto-", "", "")
	f.Add("DELETE", "/v1/sessions/..", "a=%zz&;", "\x7f", "[[[")
	f.Add("POST", "/v1/handles/a/stdin", "close=maybe", "", "\x00\xff")
	f.Add("POST", wire.PathShutdown, "", "", `{"replace":"x"}`)
	f.Fuzz(func(t *testing.T, method, path, query, token, body string) {
		r, err := http.NewRequestWithContext(ctx, method, "http://x/", strings.NewReader(body))
		if err != nil || !strings.HasPrefix(path, "/") {
			return // net/http lets no such request through
		}
		if u, err := r.URL.Parse("http://x" + path + "?" + query); err == nil {
			r.URL = u
		}
		r.Header.Set(wire.HeaderToken, token)
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		var e handles.Error
		switch {
		case w.Code == http.StatusOK && r.URL.Path == wire.PathOpenAPI:
		case w.Code < 400 || w.Code == http.StatusInternalServerError:
			t.Errorf("%s %s %q: %d %s", method, r.URL, body, w.Code, w.Body)
		case method == http.MethodHead:
		case json.Unmarshal(w.Body.Bytes(), &e) != nil || e.Code == "" || e.Code == handles.CodeInternal || e.Message == "":
			t.Errorf("%s %s %q: %d %s", method, r.URL, body, w.Code, w.Body)
		}
	})
}
