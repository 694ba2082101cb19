package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"procsup/supervisor/client"
)

// A line is an answer as it is on the wire.
type line struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Result json.RawMessage `json:"result"`
}

// answers reads what the server wrote, by id; those to no request under null.
func answers(t *testing.T, out []byte) map[string][]line {
	t.Helper()
	got := map[string][]line{}
	for _, text := range bytes.Split(bytes.TrimSpace(out), []byte("\n")) {
		var some []line
		if text[0] != '[' {
			text = append(append([]byte("["), text...), ']')
		}
		if err := json.Unmarshal(text, &some); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, l := range some {
			got[string(l.ID)] = append(got[string(l.ID)], l)
		}
	}
	return got
}

// TestFileOfRequests: `procsup mcp <file` answers every request, also those
// that take a while (go-sdk issue 1061).
func TestFileOfRequests(t *testing.T) {
	r := newRig(t)
	var in strings.Builder
	in.WriteString(hello)
	for i := 1; i <= 20; i++ {
		fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"sleep 0.%d; echo %d"}}}`+"\n", i, i%4, i)
	}
	in.WriteString(`{"jsonrpc":"2.0","id":21,"method":"resources/list"}`) // without a newline
	file := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(file, []byte(in.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		cmd := r.command()
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.Stdin = f
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got := answers(t, out)
		for i := range 22 {
			if a := got[fmt.Sprint(i)]; len(a) != 1 || a[0].Error != nil {
				t.Errorf("request %d has the answers %+v", i, a)
			}
		}
	}
}

// TestBadFrames: each line that is no request has an error, and what follows is
// answered.
func TestBadFrames(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("x", maxFrame)
	cases := []struct {
		in, id string
		code   int
	}{
		{`garbage`, "null", -32700},
		{`{"jsonrpc":"2.0","id":1,"method":`, "null", -32700},
		{strings.Repeat("[", 100000), "null", -32700},
		{"\xff\xfe\x00", "null", -32700},
		{`[]`, "null", -32600},
		{`42`, "null", -32600},
		{`{"jsonrpc":"1.0","id":2,"method":"ping"}`, "2", -32600},
		{`{"id":3,"method":"ping"}`, "3", -32600},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", -32600},
		{`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "null", -32600},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, "null", -32600},
		{`{"jsonrpc":"2.0","id":4,"method":7}`, "4", -32600},
		{`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"run_command","arguments":{"stdin":"` + long + `"}}}`, "5", -32600},
		{`{"method":"tools/call","params":{"name":"run_command","arguments":{"stdin":"` + long + `"}},"jsonrpc":"2.0","id":"six"}`, `"six"`, -32600},
		{`{"jsonrpc":"2.0","id":7,"method":"no/such"}`, "7", -32601},
		{`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"no_such"}}`, "8", -32602},
		{`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":[1]}`, "9", -32602},
		{`{"jsonrpc":"2.0","id":10,"method":"tools/call"}`, "10", -32600},
		{`{"jsonrpc":"2.0","id":11,"method":"resources/read","params":{"uri":"procsup://other"}}`, "11", -32602},
	}
	in := hello + held
	nulls := 0
	for _, c := range cases {
		in += c.in + "\n"
		if c.id == "null" {
			nulls++
		}
	}
	in += `{"jsonrpc":"2.0","id":"held","method":"ping"}` + "\n" // an id in use
	in += "\r\n\n" + `{"jsonrpc":"2.0","id":99,"method":"ping"}` + "\r\n"
	in += `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"held"}}` + "\n"
	cmd := r.command()
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, out)
	}
	got := answers(t, out)
	for _, c := range cases {
		a := got[c.id]
		if c.id != "null" && (len(a) != 1 || a[0].Error == nil || a[0].Error.Code != c.code) {
			t.Errorf("%.80s: %+v, want one error %d", c.in, a, c.code)
		}
	}
	if n := len(got["null"]); n != nulls+1 {
		t.Errorf("%d errors without an id, want %d: %+v", n, nulls+1, got["null"])
	}
	if a := got["99"]; len(a) != 1 || a[0].Error != nil {
		t.Errorf("what follows: %+v", a)
	}
	if a := got[`"held"`]; len(a) != 1 {
		t.Errorf("the call that was cancelled: %+v", a)
	}
}

// A streams is a server by its standard streams.
type streams struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	end io.Closer // of out
	dir string
}

// pipe starts a server with a command under way in a call that is not answered.
func (r *rig) pipe() *streams {
	r.t.Helper()
	cmd := r.command()
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stdout = theirs
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	theirs.Close()
	r.t.Cleanup(func() { in.Close(); out.Close(); cmd.Wait() })
	w := &streams{cmd: cmd, in: in, out: bufio.NewReader(out), end: out, dir: cmd.Dir}
	io.WriteString(in, hello+held)
	if _, err := w.out.ReadBytes('\n'); err != nil { // initialize
		r.t.Fatal(err)
	}
	return w
}

// handle is that of the command in the call.
func (r *rig) handle(w *streams) string {
	r.t.Helper()
	fmt.Fprintln(w.in, `{"jsonrpc":"2.0","id":"out","method":"tools/call","params":{"name":"list"}}`)
	for {
		b, err := w.out.ReadBytes('\n')
		if err != nil {
			r.t.Fatal(err)
		}
		var l struct {
			ID     string `json:"id"`
			Result struct {
				Structured listOutput `json:"structuredContent"`
			} `json:"result"`
		}
		if err := json.Unmarshal(b, &l); err != nil {
			r.t.Fatalf("%v: %s", err, b)
		}
		if l.ID == "out" {
			if h := l.Result.Structured.Handles; len(h) == 1 && h[0].Status == "running" {
				return h[0].Handle
			}
			fmt.Fprintln(w.in, `{"jsonrpc":"2.0","id":"out","method":"tools/call","params":{"name":"list"}}`)
		}
	}
}

// TestVanish: however a client, or the server, goes away in the middle of a call,
// the commands of the connection end, and so does the server.
func TestVanish(t *testing.T) {
	for name, vanish := range map[string]func(*streams){
		"both closed":    func(w *streams) { w.end.Close(); w.in.Close() },
		"stdout closed":  func(w *streams) { w.end.Close() },
		"server killed":  func(w *streams) { w.cmd.Process.Kill() },
		"server stopped": func(w *streams) { w.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			w := r.pipe()
			h := r.handle(w)
			vanish(w)
			if rec := r.ended(h); rec.Cause == "" || rec.Status != "killed" {
				t.Errorf("%s by %q", rec.Status, rec.Cause)
			}
			ended := make(chan error, 1)
			go func() { ended <- w.cmd.Wait() }() // ends with the server
			select {
			case err := <-ended:
				if (err != nil) != (name == "server killed") {
					t.Errorf("the server: %v", err)
				}
			case <-time.After(long):
				t.Fatal("the server goes on")
			}
		})
	}
}

// TestStdinClosed: the end of the input is no hurry: the call under way is
// answered first. Nothing of a background command is left.
func TestStdinClosed(t *testing.T) {
	r := newRig(t)
	cmd := r.command()
	cmd.Stdin = strings.NewReader(hello + `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"exec sleep 600","background_after_s":0.3}}}`)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var res struct {
		View handleView `json:"structuredContent"`
	}
	a := answers(t, out)["1"]
	if len(a) != 1 || json.Unmarshal(a[0].Result, &res) != nil || !res.View.Running {
		t.Fatalf("%s", out)
	}
	if rec := r.ended(res.View.Handle); rec.Cause != "session_closed" {
		t.Errorf("%s by %s", rec.Status, rec.Cause)
	}
}

// TestScriptFailsInTheMiddle is rule S2-31 through MCP: a script that starts a
// server and fails before it ends it leaves nothing.
func TestScriptFailsInTheMiddle(t *testing.T) {
	r := newRig(t)
	cmd := r.command()
	script := `set -e
mkfifo in out
"$0" mcp <in >out &
exec 3>in 4<out
say() { printf '%s\n' "$1" >&3; read -r answer <&4; }
say '` + strings.TrimSpace(strings.Split(hello, "\n")[0]) + `'
say '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"echo $$ >pid; echo up; setsid sleep 600 & exec sleep 600","background_after_s":0,"name":"web"}}}'
say '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait_for_output","arguments":{"handle":"web","pattern":"up"}}}'
case $answer in *matched*) ;; *) echo "$answer"; exit 9 ;; esac
echo reached
false
echo not reached`
	cmd.Args = []string{"sh", "-c", script, cmd.Path}
	cmd.Path = "/bin/sh"
	out, err := cmd.Output()
	if err == nil || string(out) != "reached\n" {
		t.Fatalf("the script: %v %s", err, out)
	}
	l, err := r.client.List(t.Context(), client.Filter{})
	if err != nil || len(l.Handles) != 1 {
		t.Fatalf("%+v %v", l, err)
	}
	rec := r.ended(string(l.Handles[0].HandleID))
	if len(rec.Cleanup.Survivors) > 0 {
		t.Errorf("left: %+v", rec.Cleanup.Survivors)
	}
}

// TestNothingGoesOn: when a connection is over, so is every goroutine of it,
// whatever it was waiting for.
func TestNothingGoesOn(t *testing.T) {
	r := newRig(t)
	r.start()
	before := goleak.IgnoreCurrent()
	for _, end := range []string{"client", "context"} {
		in, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		out, server, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { // ends with the connection
			served <- Serve(ctx, Options{Socket: r.socket, State: r.state, Env: r.env, Dir: "/", In: in, Out: server, Log: t.Output()})
			server.Close()
		}()
		io.WriteString(theirs, hello+`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"yes | head -c 100000; exec sleep 600","background_after_s":0,"name":"bg"},"_meta":{"progressToken":1}}}
`)
		b := bufio.NewReader(out)
		for range 2 {
			if _, err := b.ReadBytes('\n'); err != nil {
				t.Fatal(err)
			}
		}
		for i, call := range []string{
			`"method":"resources/subscribe","params":{"uri":"procsup://handles/bg/stdout"}`,
			`"method":"resources/subscribe","params":{"uri":"procsup://inbox"}`,
			`"method":"tools/call","params":{"name":"wait","arguments":{"handle":"bg","timeout_s":600},"_meta":{"progressToken":2}}`,
			`"method":"tools/call","params":{"name":"take_finished","arguments":{"wait_s":600}}`,
			`"method":"tools/call","params":{"name":"wait_for_output","arguments":{"handle":"bg","pattern":"never","timeout_s":600}}`,
		} {
			fmt.Fprintf(theirs, `{"jsonrpc":"2.0","id":%d,%s}`+"\n", i+2, call)
		}
		for range 2 { // the subscriptions
			if _, err := b.ReadBytes('\n'); err != nil {
				t.Fatal(err)
			}
		}
		if end == "client" {
			out.Close()
			theirs.Close()
		} else {
			cancel()
		}
		if err := <-served; err != nil && end == "context" {
			t.Errorf("%s: %v", end, err)
		}
		cancel()
		theirs.Close()
		out.Close()
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}
