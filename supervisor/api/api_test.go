package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// S2-25, S2-26, S2-08: the envelope of a start has what a client needs, and the
// paths in it are good at once.
func TestS2_26_EnvelopeOfAStart(t *testing.T) {
	s := serve(t, New(newSupervisor(t)))
	var a map[string]any
	s.call(t, "POST", wire.PathHandles, startJSON("exec sleep 100", ""), &a)
	for _, name := range []string{
		"handle_id", "started_at", "status", "command_or_op_descriptor",
		"command_id", "pid", "process_group_id", "exec_identity", "output_path", "stdout_path", "stderr_path", "sandbox",
	} {
		if _, ok := a[name]; !ok {
			t.Errorf("no %s in %v", name, a)
		}
	}
	if a["status"] != "running" || a["command_id"] != a["handle_id"] {
		t.Errorf("status %v, command_id %v, handle_id %v", a["status"], a["command_id"], a["handle_id"])
	}
	if want := map[string]any{"kind": "none", "enforced": false}; !reflect.DeepEqual(a["sandbox"], want) {
		t.Errorf("sandbox %v, want %v", a["sandbox"], want)
	}
	for _, name := range []string{"output_path", "stdout_path", "stderr_path"} {
		if _, err := os.Stat(fmt.Sprint(a[name])); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// S3-28, S3-29, S3-30, S3-31: the four answers of a wait; a timeout is none of
// the run's endings and ends nothing.
func TestS3_28_WaitStatuses(t *testing.T) {
	s := serve(t, New(newSupervisor(t)))
	start := func(script string) string {
		var a wire.Started
		s.call(t, "POST", wire.PathHandles, startJSON(script, ""), &a)
		return "/v1/handles/" + string(a.HandleID)
	}
	wait := func(h, query string) (w wire.Waited) {
		if res := s.call(t, "GET", h+"/wait"+query, "", &w); res.StatusCode != http.StatusOK {
			t.Errorf("wait%s: status %d", query, res.StatusCode)
		}
		return w
	}
	if w := wait(start("exit 0"), ""); w.Status != wire.WaitOK || w.Record.Status != handles.Completed {
		t.Errorf("exit 0: %s, %s", w.Status, w.Record.Status)
	}
	if w := wait(start("exit 4"), "?timeout_ms=60000"); w.Status != wire.WaitError || *w.Record.ExitCode != 4 {
		t.Errorf("exit 4: %s, %v", w.Status, w.Record.ExitCode)
	}
	h := start("exec sleep 100")
	if w := wait(h, "?timeout_ms=-1"); w.Status != wire.WaitPending || w.Record.Liveness != "live" {
		t.Errorf("no wait: %s, %s", w.Status, w.Record.Liveness)
	}
	if w := wait(h, "?timeout_ms=30"); w.Status != wire.WaitTimeout || w.TimeoutPhase != "running" || w.Record.Liveness != "live" || w.Record.Cause != "" {
		t.Errorf("timeout: %s in %s, %s, cause %q", w.Status, w.TimeoutPhase, w.Record.Liveness, w.Record.Cause)
	}
}

// S2-39: hello has the protocol; what we do not know in a request is ignored,
// what we do not know how to do is a clear error.
func TestS2_39_UnknownFieldsAndOperations(t *testing.T) {
	s := serve(t, New(newSupervisor(t)))
	var h wire.Hello
	if s.call(t, "GET", wire.PathHello, "", &h); h.Protocol != wire.Protocol || h.PID != os.Getpid() {
		t.Errorf("hello %+v", h)
	}
	var a wire.Started
	res := s.call(t, "POST", wire.PathHandles+"?tomorrow=1", startJSON("exit 0", `,"tomorrow":{"x":[1]}`), &a)
	if res.StatusCode != http.StatusOK || a.HandleID == "" {
		t.Errorf("a start with a field of the future: %d, %+v", res.StatusCode, a)
	}
	for method, target := range map[string]string{
		"GET": "/v1/tomorrow", "POST": "/v2/handles", "PUT": "/", "PROPFIND": "/v1/handles/x/y/z",
	} {
		e := s.refused(t, method, target, "", handles.CodeUnsupported, http.StatusNotFound)
		if !strings.Contains(e.Message, target) || !strings.Contains(e.Hint, wire.PathOpenAPI) {
			t.Errorf("%s %s: %+v names neither the path nor where to look", method, target, e)
		}
	}
	s.refused(t, "GET", "/v1//handles", "", handles.CodeUnsupported, http.StatusNotFound)
	s.refused(t, "DELETE", wire.PathHandles, "", handles.CodeUnsupported, http.StatusMethodNotAllowed)
	res = s.call(t, "GET", wire.PathShutdown, "", nil)
	if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "POST" {
		t.Errorf("GET %s: %d, Allow %q", wire.PathShutdown, res.StatusCode, res.Header.Get("Allow"))
	}
}

// S3-49: until the journal is read there is an answer, and it is "starting",
// never a part of the truth.
func TestS3_49_StartingUntilOpened(t *testing.T) {
	d := NewDoor()
	s := serve(t, d)
	for _, o := range operations(t) {
		if o.path == wire.PathOpenAPI {
			continue
		}
		body := ""
		switch o {
		case operation{"POST", wire.PathHandles}:
			body = startJSON("exit 0", "")
		case operation{"POST", wire.PathWaitOutput}:
			body = `{"pattern":"x"}`
		case operation{"POST", wire.PathSignal}:
			body = `{"signal":"TERM"}`
		case operation{"POST", wire.PathCancelByID}:
			body = `{"handle_id":"x"}`
		case operation{"POST", wire.PathRun}:
			body = startJSON("exit 0", "")
		case operation{"POST", wire.PathAcknowledge}:
			body = `{"batch":"x"}`
		case operation{"POST", wire.PathScopes}:
			body = `{"name":"x"}`
		}
		s.refused(t, o.method, strings.NewReplacer("{h}", "x", "{s}", "x", "{g}", "x").Replace(o.path), body, handles.CodeStarting, http.StatusServiceUnavailable)
	}
	if res := s.call(t, "GET", wire.PathOpenAPI, "", nil); res.StatusCode != http.StatusOK {
		t.Errorf("openapi while starting: %d", res.StatusCode)
	}
	d.Open(newSupervisor(t))
	var l wire.List
	if res := s.call(t, "GET", wire.PathHandles, "", &l); res.StatusCode != http.StatusOK || l.Handles == nil {
		t.Errorf("list when opened: %d, %+v", res.StatusCode, l)
	}
}

// An operation is what the OpenAPI document lists, and that document itself.
type operation struct{ method, path string }

func operations(t *testing.T) (all []operation) {
	t.Helper()
	_, doc := routes(&Door{})
	var d struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(doc(), &d); err != nil {
		t.Fatal(err)
	}
	for path, methods := range d.Paths {
		for m := range methods {
			all = append(all, operation{strings.ToUpper(m), path})
		}
	}
	if len(all) < 36 {
		t.Fatalf("only %d operations: %v", len(all), all)
	}
	return append(all, operation{"GET", wire.PathOpenAPI})
}

// S2-38: a generic invoke has only the id.
func TestS2_38_CancelByIDAlone(t *testing.T) {
	s := serve(t, New(newSupervisor(t)))
	var a wire.Started
	s.call(t, "POST", wire.PathHandles, startJSON("exec sleep 100", ""), &a)
	var k wire.Cancelled
	s.call(t, "POST", "/v1/cancel_handle", `{"handle_id":"`+string(a.HandleID)+`"}`, &k)
	if !k.Cancelled || k.Record.Status != handles.Killed || k.Record.Cause != handles.CauseCancelled {
		t.Errorf("cancelled %v, %s by %s", k.Cancelled, k.Record.Status, k.Record.Cause)
	}
	// S2-29: again is no error.
	if s.call(t, "POST", "/v1/cancel_handle", `{"handle_id":"`+string(a.HandleID)+`"}`, &k); k.Cancelled {
		t.Error("the second cancel says that it ended the run")
	}
}

// Every code has its status, also through a wrap; an error without a code is
// internal.
func TestErrorsKeepTheirCode(t *testing.T) {
	for code, status := range statusOf {
		e := &handles.Error{Code: code, Message: "what", Hint: "do that", ID: "x"}
		f := fail(fmt.Errorf("in front: %w", e))
		if f.GetStatus() != status || f.e.Code != code || f.e.Hint != "do that" || f.e.Message != "in front: what" {
			t.Errorf("%s: got %d %+v, want %d", code, f.GetStatus(), f.e, status)
		}
	}
	if f := fail(errors.New("boom")); f.GetStatus() != 500 || f.e.Code != handles.CodeInternal || f.e.Message != "boom" {
		t.Errorf("an error without a code: %d %+v", f.GetStatus(), f.e)
	}
	if f := fail(fmt.Errorf("read: %w", journal.ErrClosed)); f.e.Code != handles.CodeStarting {
		t.Errorf("a closed journal: %+v", f.e)
	}
}

// Bad requests are refused with the field that is wrong, before anything happens.
func TestBadRequests(t *testing.T) {
	sup := newSupervisor(t)
	s := serve(t, New(sup))
	for body, field := range map[string]string{
		`{"command":5,"env":[]}`:                             "command",
		`{"command":["true"]}`:                               "body",
		`{"command":[],"env":[]}`:                            "command",
		`{"command":["true"],"env":[],"dir":"relative"}`:     "dir",
		`{"command":["true"],"env":["NOVALUE"]}`:             "env",
		`{"command":["true"],"env":[],"umask":"x"}`:          "umask",
		`{"command":["true"],"env":[],"grace_ms":-1}`:        "grace_ms",
		`{"command":["true"],"env":[],"lease":"forever"}`:    "lease",
		`{"command":["true"],"env":[],"containment":"jail"}`: "containment",
		`{`:    "body",
		`[]`:   "body",
		`null`: "body",
	} {
		if e := s.refused(t, "POST", wire.PathHandles, body, handles.CodeInvalid, http.StatusBadRequest); e.ID != field {
			t.Errorf("%s: got %+v, want the field %s", body, e, field)
		}
	}
	s.refused(t, "POST", wire.PathHandles, "", handles.CodeInvalid, http.StatusBadRequest)
	s.refused(t, "GET", wire.PathHandles+"?limit=-1", "", handles.CodeInvalid, http.StatusBadRequest)
	s.refused(t, "GET", wire.PathHandles+"?limit=many", "", handles.CodeInvalid, http.StatusBadRequest)
	s.refused(t, "GET", "/v1/handles/x/output?source=fd3", "", handles.CodeInvalid, http.StatusBadRequest)
	s.refused(t, "GET", "/v1/handles/hto-nothing", "", handles.CodeNotFound, http.StatusNotFound)
	if l, err := sup.List(t.Context(), journal.Filter{}); err != nil || len(l.Handles) != 0 {
		t.Errorf("after nothing but bad requests there are %d handles, %v", len(l.Handles), err)
	}
}

// What a shutdown or a replacement asks for reaches the process that serves, once
// its answer is on its way. A second one is no error and does not block; an end
// takes the place of a replacement that is pending.
func TestShutdownIsPassedOn(t *testing.T) {
	d := New(newSupervisor(t))
	s := serve(t, d)
	replace := func() {
		t.Helper()
		var a wire.Accepted
		if s.call(t, "POST", wire.PathShutdown, `{"replace":true,"exe":"/x"}`, &a); !a.Accepted || a.Generation != 1 {
			t.Errorf("answer %+v", a)
		}
	}
	passed := func() { // the connection serves the next when the last was passed on
		t.Helper()
		s.call(t, "GET", wire.PathHello, "", nil)
	}
	replace()
	replace()
	passed()
	if got, want := <-d.Requests(), (Request{Replace: true, Exe: "/x"}); got != want {
		t.Errorf("request %+v, want %+v", got, want)
	}
	s.call(t, "POST", wire.PathShutdown, "", nil)
	if got := <-d.Requests(); got != (Request{}) {
		t.Errorf("a shutdown without a body is %+v, not a plain one", got)
	}
	replace()
	s.call(t, "POST", wire.PathShutdown, "", nil)
	replace()
	passed()
	if got := <-d.Requests(); got != (Request{}) {
		t.Errorf("after replacements and an end %+v is pending", got)
	}
	select {
	case got := <-d.Requests():
		t.Errorf("%+v is pending too", got)
	default:
	}
}

func body(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
