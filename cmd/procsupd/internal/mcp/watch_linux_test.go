package mcp

import (
	"context"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// updates collects what a client is told of resources.
func updates() (*sdk.ClientOptions, chan string) {
	told := make(chan string, 1000)
	return &sdk.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) {
		told <- r.Params.URI
	}}, told
}

func next(t *testing.T, told <-chan string, want string) {
	t.Helper()
	for {
		select {
		case uri := <-told:
			if uri == want {
				return
			}
		case <-time.After(long):
			t.Fatalf("nothing was told of %s", want)
		}
	}
}

// TestSubscriptions: output, records and the inbox as resources.
func TestSubscriptions(t *testing.T) {
	r := newRig(t)
	o, told := updates()
	a := r.connect(o)
	v, _ := must[handleView](a, "run_command", args{"command": "while read x; do echo $x; done; read y", "open_stdin": true, "background_after_s": 0})
	id := handles.ID(v.Handle)
	out := handleURI(id) + "/stdout"
	for _, uri := range []string{out, handleURI(id), inboxURI} {
		if err := a.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}); err != nil {
			t.Fatalf("%s: %v", uri, err)
		}
	}
	for _, line := range []string{"one\n", "two\n"} {
		must[handleView](a, "write_stdin", args{"handle": v.Handle, "text": line})
		a.told(v.Handle, line)
		next(t, told, out)
	}
	res, err := a.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: out})
	if err != nil || res.Contents[0].Text != "one\ntwo\n" {
		t.Errorf("%s: %+v %v", out, res, err)
	}
	if _, err := r.client.Signal(t.Context(), v.Handle, wire.Signal{Signal: "TERM"}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for len(seen) < 2 { // its end: the record, and the inbox
		select {
		case uri := <-told:
			if uri != out {
				seen[uri] = true
			}
		case <-time.After(long):
			t.Fatalf("the end was told of %v only", seen)
		}
	}
	_, list := must[listOutput](a, "list", nil)
	if !strings.Contains(text(list), "(1 finished in the background: take_finished") {
		t.Errorf("the next answer does not announce it: %s", text(list))
	}
	inbox, err := a.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: inboxURI})
	if err != nil || !strings.Contains(inbox.Contents[0].Text, v.Handle) {
		t.Errorf("inbox: %+v %v", inbox, err)
	}
	b, _ := must[takeOutput](a, "take_finished", nil)
	must[ackOutput](a, "acknowledge", args{"batch": b.Batch})
	if _, list := must[listOutput](a, "list", nil); strings.Contains(text(list), "finished in the background") {
		t.Errorf("it is announced for ever: %s", text(list))
	}
}

// TestUnsubscribe: who does not listen any more is told nothing.
func TestUnsubscribe(t *testing.T) {
	r := newRig(t)
	o, told := updates()
	a := r.connect(o)
	v, _ := must[handleView](a, "run_command", args{"command": "while read x; do echo $x; done", "open_stdin": true, "background_after_s": 0})
	quiet, heard := handleURI(handles.ID(v.Handle))+"/stdout", inboxURI
	for _, uri := range []string{quiet, heard} {
		if err := a.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: quiet}); err != nil {
		t.Fatal(err)
	}
	must[handleView](a, "write_stdin", args{"handle": v.Handle, "text": "x\n"})
	a.told(v.Handle, "x")
	r.finished(a, 1)
	for {
		select {
		case uri := <-told:
			if uri == quiet {
				t.Errorf("told of %s", uri)
			}
			if uri == heard {
				return
			}
		case <-time.After(long):
			t.Fatal("nothing was told")
		}
	}
}

func TestResourcesThatAreNot(t *testing.T) {
	a := newRig(t).connect(nil)
	for _, uri := range []string{handleBase + "nobody", handleBase + "nobody/stdout", handleBase + "x/y/z", "procsup://other", "file:///etc/passwd"} {
		if res, err := a.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("%s: %+v %v", uri, res, err)
		}
	}
}

// TestProgress: a call that asks for it hears of output while it goes on, never
// less than before, and nothing after its answer.
func TestProgress(t *testing.T) {
	heard := make(chan float64, 1000)
	r := newRig(t)
	a := r.connect(&sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, p *sdk.ProgressNotificationClientRequest) {
		heard <- p.Params.Progress
	}})
	params := &sdk.CallToolParams{Name: "run_command", Arguments: args{"command": "sleep 0.3; for i in 1 2 3 4; do echo line $i; sleep 0.15; done"}}
	params.SetProgressToken("t1")
	res, err := a.CallTool(t.Context(), params)
	if err != nil || res.IsError {
		t.Fatalf("%v %v", res, err)
	}
	must[listOutput](a, "list", nil) // what was sent before is here by now
	n, last := len(heard), 0.0
	for range n {
		if p := <-heard; p <= last || p > 28 {
			t.Errorf("progress %v after %v", p, last)
		} else {
			last = p
		}
	}
	if n < 2 {
		t.Errorf("%d notes of progress for 4 lines in 0.6 s", n)
	}
}
