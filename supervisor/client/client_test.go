package client_test

import (
	"bytes"
	"testing"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

func TestStartWaitShowListCancelOutput(t *testing.T) {
	d := newDaemon(t)
	c := d.client(t, nil)
	h, err := c.Hello(t.Context())
	if err != nil || h.Protocol != wire.Protocol {
		t.Fatalf("hello %+v, %v", h, err)
	}
	a := start(t, c, nil, "sh", "-c", "echo out; echo err >&2; exit 3")
	w, err := c.Wait(t.Context(), string(a.HandleID), 0)
	if err != nil || w.Status != wire.WaitError || w.Record.ExitCode == nil || *w.Record.ExitCode != 3 {
		t.Fatalf("wait %s, %v", asJSON(w), err)
	}
	var out bytes.Buffer
	if err := c.Output(t.Context(), string(a.HandleID), wire.OutputQuery{Source: "stderr"}, &out, nil, nil); err != nil || out.String() != "err\n" {
		t.Fatalf("output %q, %v", out.String(), err)
	}
	b := start(t, c, func(r *wire.Start) { r.Name = "sleeper" }, "sleep", "100")
	l, err := c.List(t.Context(), client.Filter{Live: true})
	if err != nil || len(l.Handles) != 1 || l.Handles[0].HandleID != b.HandleID {
		t.Fatalf("list %s, %v", asJSON(l), err)
	}
	k, err := c.Cancel(t.Context(), "sleeper", wire.Cancel{})
	if err != nil || !k.Cancelled || k.Record.Status != handles.Killed {
		t.Fatalf("cancel %s, %v", asJSON(k), err)
	}
}
