//go:build linux

package api

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// curl does all that the API can do, and says so by its exit code. An operation
// of the OpenAPI document without a line here fails.
func TestCurlDoesEverything(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("PROCSUP_NO_SKIP") != "" {
			t.Fatal("no curl")
		}
		t.Skip("no curl")
	}
	d := New(newSupervisor(t))
	s := serve(t, d)
	todo := map[operation]bool{}
	for _, o := range operations(t) {
		todo[o] = true
	}
	curl := func(pattern, h, query string, args ...string) string {
		t.Helper()
		o := operation{"GET", pattern}
		if len(args) > 0 {
			o.method = "POST" // -X POST, or data
		}
		if !todo[o] && !slices.Contains(operations(t), o) {
			t.Errorf("the OpenAPI document does not list %v", o)
		}
		delete(todo, o)
		url := "http://procsup" + strings.Replace(pattern, "{h}", h, 1) + query
		out, err := exec.CommandContext(t.Context(), "curl", append([]string{"-sS", "--fail-with-body", "--unix-socket", s.socket, url}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("curl %v %s: %v\n%s", args, url, err, out)
		}
		return string(out)
	}
	has := func(what, out, want string) {
		t.Helper()
		if !strings.Contains(out, want) {
			t.Errorf("%s: no %s in %s", what, want, out)
		}
	}
	id := func(out string) string {
		t.Helper()
		var a wire.Started
		if err := json.Unmarshal([]byte(out), &a); err != nil || a.HandleID == "" {
			t.Fatalf("start: %v in %s", err, out)
		}
		return string(a.HandleID)
	}
	start := func(script, more string) string {
		t.Helper()
		return id(curl(wire.PathHandles, "", "", "-d", startJSON(script, more)))
	}
	has("hello", curl(wire.PathHello, "", ""), `"protocol":1`)
	h := start("read line; echo got $line; read rest; exec sleep 100", `,"stdin":"pipe","name":"reader"`)
	has("show", curl(wire.PathHandle, "reader", ""), h)
	has("list", curl(wire.PathHandles, "", "?live=true"), h)
	has("send", curl(wire.PathStdin, h, "", "--data-binary", "bytes\n"), `"running"`)
	has("wait-output", curl(wire.PathWaitOutput, h, "", "-d", `{"pattern":"got bytes"}`), `"matched"`)
	has("output", curl(wire.PathOutput, h, ""), "got bytes\n")
	has("index", curl(wire.PathIndex, h, ""), `"source":"stdout"`)
	has("close", curl(wire.PathStdin, h, "?close=true", "-X", "POST"), h)
	has("wait", curl(wire.PathWait, h, "?timeout_ms=-1"), `"pending"`)
	again := id(curl(wire.PathRestart, h, "", "-X", "POST"))
	has("signal", curl(wire.PathSignal, again, "", "-d", `{"signal":"KILL"}`), again)
	has("wait", curl(wire.PathWait, again, ""), `"signal":"KILL"`)
	has("cancel", curl(wire.PathCancel, h, "", "-X", "POST"), `"cancelled":false`)
	has("cancel", curl(wire.PathCancelByID, "", "", "-d", fmt.Sprintf(`{"handle_id":%q}`, start("exec sleep 100", ""))), `"cancelled":true`)
	has("journal", curl(wire.PathJournal, "", "?run="+h+"&limit=1"), `"admitted"`)
	has("journal check", curl(wire.PathJournalCheck, "", "", "-X", "POST"), `"ok":true`)
	has("openapi", curl(wire.PathOpenAPI, "", ""), `"openapi": "3.1`)
	has("shutdown", curl(wire.PathShutdown, "", "", "-d", `{"replace":true}`), `"accepted":true`)
	<-d.Requests()
	if len(todo) > 0 {
		t.Errorf("curl was not asked for %v", todo)
	}
	out, err := exec.CommandContext(t.Context(), "curl", "-sS", "--fail", "--unix-socket", s.socket, "http://procsup/v1/handles/nobody").CombinedOutput()
	if err == nil {
		t.Errorf("curl --fail is happy with %s", out)
	}
	var e handles.Error
	out, _ = exec.CommandContext(t.Context(), "curl", "-s", "--unix-socket", s.socket, "http://procsup/v1/handles/nobody").Output()
	if json.Unmarshal(out, &e) != nil || e.Code != handles.CodeNotFound {
		t.Errorf("not found: %s", out)
	}
}
