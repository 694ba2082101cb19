//go:build linux

package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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
		o := operation{methodOf(args), pattern}
		if !todo[o] && !slices.Contains(operations(t), o) {
			t.Errorf("the OpenAPI document does not list %v", o)
		}
		delete(todo, o)
		url := "http://procsup" + strings.NewReplacer("{h}", h, "{s}", "s", "{g}", "g").Replace(pattern) + query
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
	has("wait-ready", curl(wire.PathWaitReady, start("echo up; exec sleep 100", `,"ready":["output:up"]`), ""), `"ready"`)
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
	curlSession(curl, has, start)
	curlAttach(t, s, func() { curl(wire.PathSessionClose, "", "", "-X", "POST") })
	delete(todo, operation{"POST", wire.PathAttach})
	h = start("read x", `,"stdin":"pipe"`)
	curlEvents(t, s, h, func() { curl(wire.PathStdin, h, "?close=true", "-X", "POST") })
	delete(todo, operation{"GET", wire.PathEvents})
	has("shutdown", curl(wire.PathShutdown, "", "", "-d", `{"replace":true}`), `"accepted":true`)
	<-d.Requests()
	if len(todo) > 0 {
		t.Errorf("curl was not asked for %v", todo)
	}
	curlError(t, s)
}

// methodOf is the method that curl uses.
func methodOf(args []string) string {
	for i, a := range args {
		switch a {
		case "-X":
			return args[i+1]
		case "-d", "--data-binary":
			return "POST"
		}
	}
	return "GET"
}

// curlSession does what can be done with sessions, in session s.
func curlSession(curl func(pattern, h, query string, args ...string) string, has func(what, out, want string), start func(script, more string) string) {
	const in = `,"session":"s"`
	has("session open", curl(wire.PathSessions, "", "", "-d", `{"name":"s"}`), `"token":"`)
	has("session list", curl(wire.PathSessions, "", ""), `"name":"s"`)
	has("session show", curl(wire.PathSession, "", ""), `"status":"open"`)
	has("run", curl(wire.PathRun, "", "", "-d", startJSON("exit 3", in)), `"exit_code":3`)
	h := start("read x", in+`,"stdin":"pipe"`)
	has("idle", curl(wire.PathIdle, "", ""), `"handles":1`)
	curl(wire.PathStdin, h, "?close=true", "-X", "POST")
	has("idle", curl(wire.PathIdle, "", "?wait_ms=-1&expect="+h), `"missing":["`+h)
	has("pending", curl(wire.PathPending, "", ""), `"count":1`)
	taken := curl(wire.PathTake, "", "", "-X", "POST")
	has("take", taken, h)
	batch := taken[strings.Index(taken, "bat-"):]
	batch = batch[:strings.IndexByte(batch, '"')]
	has("acknowledge", curl(wire.PathAcknowledge, "", "", "-d", `{"batch":"`+batch+`"}`), `"pending":0`)
	has("deliveries", curl(wire.PathDeliveries, "", ""), batch)
	has("scope open", curl(wire.PathScopes, "", "", "-d", `{"name":"g"}`), `"g"`)
	has("scope list", curl(wire.PathScopes, "", ""), `"g"`)
	has("scope cancel", curl(wire.PathScopeCancel, "", "", "-X", "POST"), `"cancelled":["g"]`)
	h = start("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", in)
	curl(wire.PathWaitOutput, h, "", "-d", `{"pattern":"up"}`)
	has("session clear", curl(wire.PathSessionClear, "", "", "-X", "POST"), `"ended":["`+h)
	has("session reset", curl(wire.PathSessionReset, "", "", "-X", "POST"), `"ended":[]`)
	has("session shutdown", curl(wire.PathSessionShutdown, "", "", "-X", "POST"), `"still_active":[]`)
	has("notices", curl(wire.PathNotices, "", "?since=1"), `"kind":"closed"`)
	has("session close", curl(wire.PathSessionClose, "", "", "-X", "POST"), `"session":"s"`)
	has("session delete", curl(wire.PathSession, "", "", "-X", "DELETE"), `"session":"s"`)
}

// curlEvents reads the events of a run that ends once they are being read.
func curlEvents(t *testing.T, s *served, h string, end func()) {
	t.Helper()
	url := "http://procsup" + strings.Replace(wire.PathEvents, "{h}", h, 1)
	cmd := exec.CommandContext(t.Context(), "curl", "-sSN", "--fail", "--unix-socket", s.socket, url)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if _, err := r.ReadString('\n'); err != nil { // of its start
		t.Fatal(err)
	}
	end()
	rest, err := io.ReadAll(r)
	if err != nil || !strings.Contains(string(rest), `"kind":"ended"`) {
		t.Errorf("events: %s, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("events: %v", err)
	}
}

// curlAttach holds a session until somebody else closes it.
func curlAttach(t *testing.T, s *served, closeIt func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "curl", "-sSN", "--fail", "--unix-socket", s.socket, "http://procsup"+wire.PathAttach, "-d", `{"name":"s"}`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, `"attached":true`) {
		t.Errorf("attach: %q, %v", line, err)
	}
	closeIt()
	if err := cmd.Wait(); err != nil {
		t.Errorf("attach, when the session was closed: %v", err)
	}
}

func curlError(t *testing.T, s *served) {
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
