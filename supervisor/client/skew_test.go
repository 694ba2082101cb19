package client_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// tomorrow is a daemon and a client of another version at once: every object
// that crosses the socket, either way, has a field that nobody here knows.
func tomorrow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
				body = extend(body)
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		body := rec.Body.Bytes()
		if strings.HasPrefix(rec.Header().Get("Content-Type"), "application/json") {
			body = extend(body)
		}
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(rec.Code)
		_, _ = w.Write(body)
	})
}

// extend adds a field to every object of a JSON text.
func extend(text []byte) []byte {
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return text
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
			v["of_tomorrow"] = map[string]any{"list": []any{1, "x", nil}}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(v)
	b, _ := json.Marshal(v)
	return b
}

// S4-33, S2-39: changes only add fields, and whoever does not know one ignores
// it, both ways: every call works between an old end and a new one.
func TestS4_33_AnOldEndAndANewOne(t *testing.T) {
	d := newDaemon(t)
	d.hangUp()
	seen := 0
	d.handler = tomorrow(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); len(b) > 0 {
			if bytes.Contains(b, []byte("of_tomorrow")) {
				seen++
			}
			r.Body = io.NopCloser(bytes.NewReader(b))
		}
		d.door.ServeHTTP(w, r)
	}))
	d.listen(t)
	c := d.client(t, nil)
	ctx := t.Context()
	a := start(t, c, func(s *wire.Start) { s.Stdin = "pipe" }, "sh", "-c", "read line; echo got $line; exec sleep 100")
	h := string(a.HandleID)
	var record *handles.Record
	for name, call := range map[string]func() error{
		"hello":   func() error { _, err := c.Hello(ctx); return err },
		"show":    func() (err error) { record, err = c.Show(ctx, h); return err },
		"list":    func() error { _, err := c.List(ctx, client.Filter{}); return err },
		"wait":    func() error { _, err := c.Wait(ctx, h, -1); return err },
		"signal":  func() error { _, err := c.Signal(ctx, h, wire.Signal{Signal: "CONT"}); return err },
		"journal": func() error { _, err := c.Journal(ctx, 0, h, 0); return err },
		"check":   func() error { _, err := c.CheckJournal(ctx); return err },
		"index":   func() error { _, err := c.Index(ctx, h); return err },
		"send":    func() error { _, err := c.Send(ctx, h, []byte("it\n"), false); return err },
		"wait-output": func() error {
			_, err := c.WaitOutput(ctx, h, wire.WaitOutput{Pattern: "nothing", TimeoutMS: 1})
			return err
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if record == nil || record.HandleID != a.HandleID || record.PID != a.PID {
		t.Errorf("show: %+v", record)
	}
	if w, err := c.WaitOutput(ctx, h, wire.WaitOutput{Pattern: "got it"}); err != nil || w.Status != wire.Matched {
		t.Errorf("wait-output: %+v, %v", w, err)
	}
	next, err := c.Restart(ctx, h, wire.Cancel{})
	if err != nil {
		t.Fatal(err)
	}
	if k, err := c.Cancel(ctx, string(next.HandleID), wire.Cancel{}); err != nil || !k.Cancelled {
		t.Errorf("cancel: %+v, %v", k, err)
	}
	if _, err := c.Show(ctx, "nobody"); !errors.Is(err, handles.ErrNotFound) {
		t.Errorf("an error: %v", err)
	}
	if seen < 5 {
		t.Errorf("only %d requests had a field of tomorrow", seen)
	}
}

// S4-33: an older daemon that does not know the key of a cancel, or anything
// else of ours, answers with less; what is missing is its zero value.
func TestS4_33_AnOlderDaemonAnswersLess(t *testing.T) {
	d := newDaemon(t)
	d.hangUp()
	d.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/cancel"):
			_, _ = io.WriteString(w, `{"cancelled":true,"record":{"handle_id":"hto-1","status":"killed"}}`)
		case r.Method == "POST":
			_, _ = io.WriteString(w, `{"handle_id":"hto-1","status":"running"}`)
		default:
			_, _ = io.WriteString(w, `{"protocol":0}`)
		}
	})
	d.listen(t)
	c := d.client(t, nil)
	if a := start(t, c, nil, "x"); a.HandleID != "hto-1" || a.Revision != 0 {
		t.Errorf("%+v", a)
	}
	if k, err := c.Cancel(t.Context(), "hto-1", wire.Cancel{}); err != nil || !k.Cancelled || k.Record.Status != handles.Killed {
		t.Errorf("%+v, %v", k, err)
	}
	if h, err := c.Hello(t.Context()); err != nil || h.Generation != 0 {
		t.Errorf("%+v, %v", h, err)
	}
}
