package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"procsup/handles"
	"procsup/supervisor"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// S3-50: nothing is let in before it is known what may be let in. A start that
// comes too early is refused and never carried out; then the limits hold from
// the first start on.
func TestS3_50_NothingIsAdmittedBeforeTheLimitsAreKnown(t *testing.T) {
	d := NewDoor()
	s := serve(t, d)
	for range 3 {
		s.refused(t, "POST", wire.PathHandles, startJSON("exec sleep 100", ""), handles.CodeStarting, http.StatusServiceUnavailable)
	}
	sup, err := supervisor.Open(t.Context(), supervisor.Config{Dir: t.TempDir(), SessionLive: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sup.Close() })
	d.Open(sup)
	if l, err := sup.List(t.Context(), journal.Filter{}); err != nil || len(l.Handles) != 0 {
		t.Errorf("what was refused has been started: %+v, %v", l, err)
	}
	var a wire.Started
	s.call(t, "POST", wire.PathHandles, startJSON("exec sleep 100", ""), &a)
	if a.Status != handles.Running {
		t.Errorf("the first: %+v", a)
	}
	s.refused(t, "POST", wire.PathHandles, startJSON("exec sleep 100", ""), handles.CodeFull, http.StatusTooManyRequests)
}

// S4-21, S4-33: what a client believes of a run does not count. One that says
// in a field we do not have that nothing was running does not save it, and one
// that says it was running does not claim an end.
func TestS4_21_WhatAClientBelievesDoesNotCount(t *testing.T) {
	s := serve(t, New(newSupervisor(t)))
	start := func(script string) string {
		var a wire.Started
		s.call(t, "POST", wire.PathHandles, startJSON(script, ""), &a)
		return "/v1/handles/" + string(a.HandleID)
	}
	var k, late wire.Cancelled
	s.call(t, "POST", start("exec sleep 100")+"/cancel", `{"running":false,"status":"completed","in_flight":null}`, &k)
	if !k.Cancelled || k.Record.Status != handles.Killed {
		t.Errorf("one that runs: %+v", k)
	}
	h := start("exit 0")
	s.call(t, "GET", h+"/wait", "", nil)
	s.call(t, "POST", h+"/cancel", `{"running":true,"status":"running","cuts":"x"}`, &late)
	if late.Cancelled || late.Record.Status != handles.Completed || late.Record.Stop != nil {
		t.Errorf("one that has ended: %+v", late)
	}
}

// S3-52, S3-27: each record that crosses the socket says for which moment it is
// true, and the document says how to compare.
func TestS3_52_TheMomentIsDocumented(t *testing.T) {
	s := serve(t, New(newSupervisor(t)))
	var a map[string]any
	s.call(t, "POST", wire.PathHandles, startJSON("exit 0", `,"session":"S/"`), &a)
	if a["session_id"] != "S" || a["handle_id"] == "" || a["revision"] == nil || a["seq"] == nil {
		t.Errorf("the answer to a start: %v", a)
	}
	var doc struct {
		Info       struct{ Description string }
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	s.call(t, "GET", wire.PathOpenAPI, "", &doc)
	if !strings.Contains(doc.Info.Description, "superseded") || !strings.Contains(doc.Info.Description, "seq") {
		t.Errorf("the document says nothing of it: %q", doc.Info.Description)
	}
	for _, name := range []string{"Started", "Record"} {
		p := doc.Components.Schemas[name].Properties
		if p["revision"] == nil || p["seq"] == nil {
			t.Errorf("%s has no revision or seq", name)
		}
	}
}
