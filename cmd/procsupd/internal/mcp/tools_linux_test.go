package mcp

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
)

func TestRunCommand(t *testing.T) {
	r := newRig(t)
	a := r.connect(nil)
	dir := t.TempDir()
	for name, c := range map[string]struct {
		in     args
		status handles.Status
		code   int
		out    string
		errs   string
	}{
		"a line":         {args{"command": "echo out; echo err >&2"}, "completed", 0, "out\n", "err\n"},
		"argv":           {args{"argv": []string{"printf", "%s|", "a b", "c"}}, "completed", 0, "a b|c|", ""},
		"exit 3":         {args{"command": "exit 3"}, "failed", 3, "", ""},
		"not there":      {args{"argv": []string{"no-such-program"}}, "failed", -1, "", ""},
		"dir":            {args{"command": "pwd", "dir": dir}, "completed", 0, dir + "\n", ""},
		"relative dir":   {args{"command": "pwd", "dir": "."}, "completed", 0, a.cmd.Dir + "\n", ""},
		"env":            {args{"command": `echo "$A,$HOME"`, "env": args{"A": "1", "HOME": "/x"}}, "completed", 0, "1,/x\n", ""},
		"stdin":          {args{"command": "cat; echo .", "stdin": "héllo"}, "completed", 0, "héllo.\n", ""},
		"stdin, unread":  {args{"command": "echo done", "stdin": strings.Repeat("x", 1<<20)}, "completed", 0, "done\n", ""},
		"no stdin":       {args{"command": "cat"}, "completed", 0, "", ""},
		"nulls are left": {args{"command": "echo x", "argv": nil, "env": nil, "dir": nil, "deadline_s": nil}, "completed", 0, "x\n", ""},
		"as a terminal":  {args{"command": `printf '\033[31mred\033[0m 1\r2\n'`}, "completed", 0, "2\n", ""},
		"raw":            {args{"command": `printf '\033[31mred'`, "raw": true}, "completed", 0, "\x1b[31mred", ""},
		"deadline":       {args{"command": "echo so far; exec sleep 600", "deadline_s": 0.3}, "killed", -1, "so far\n", ""},
		"longer":         {args{"command": "sleep 0.5; echo late"}, "completed", 0, "late\n", ""},
		"whole float":    {args{"command": "echo 12345", "max_bytes": 3.0}, "completed", 0, "12\n[… 3 bytes omitted: read_output from 2 …]\n\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v, res := must[handleView](a, "run_command", c.in)
			code := -1
			if v.ExitCode != nil {
				code = *v.ExitCode
			}
			if handles.Status(v.Status) != c.status || code != c.code {
				t.Errorf("%s, exit code %d; want %s, %d\n%s", v.Status, code, c.status, c.code, text(res))
			}
			if v.Stdout == nil || v.Stdout.Text != c.out || v.Stderr == nil || v.Stderr.Text != c.errs {
				if c.status != "failed" || code != -1 { // what never ran wrote nothing
					t.Errorf("stdout %+v, stderr %+v; want %q, %q", v.Stdout, v.Stderr, c.out, c.errs)
				}
			}
			if strings.Contains(text(res), "\x1b") != (name == "raw") {
				t.Errorf("escapes in %q", text(res))
			}
			if res.IsError != (c.status != "completed") { // contract D6
				t.Errorf("isError %v for %s", res.IsError, c.status)
			}
			if c.out != "" && !strings.Contains(text(res), strings.TrimSpace(strings.SplitN(c.out, "\n", 2)[0])) {
				t.Errorf("the text does not show the output: %q", text(res))
			}
		})
	}
	// Every end was delivered with its answer.
	if b, _ := must[takeOutput](a, "take_finished", nil); b.Count != 0 {
		t.Errorf("%d ends are owed again: %+v", b.Count, b)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "procsup-stdin-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestOutputOffsets(t *testing.T) {
	a := newRig(t).connect(nil)
	v, _ := must[handleView](a, "run_command", args{"command": "seq 1 20000; printf 'ende ä'", "max_bytes": 100})
	all := ""
	for i := 1; i <= 20000; i++ {
		all += fmt.Sprintf("%d\n", i)
	}
	all += "ende ä"
	o := v.Stdout
	if o.From != 0 || o.Total != int64(len(all)) || o.To != o.Total || o.Omitted != o.Total-100 || !strings.HasPrefix(o.Text, "1\n2\n") || !strings.HasSuffix(o.Text, "ende ä") {
		t.Errorf("head and tail: %+v", o)
	}
	got := ""
	for from := int64(0); from < o.Total; { // no rune is cut, nothing is lost or doubled
		p, _ := must[textView](a, "read_output", args{"handle": v.Handle, "from": from, "max_bytes": 7777, "raw": true})
		if p.From != from || p.To <= from || p.Omitted != 0 {
			t.Fatalf("from %d: %+v", from, p)
		}
		got, from = got+p.Text, p.To
	}
	if got != all {
		t.Errorf("read %d bytes in parts, want %d", len(got), len(all))
	}
	p, _ := must[textView](a, "read_output", args{"handle": v.Handle, "from": -1}) // within the ä
	if p.From != o.Total || p.Text != "" {
		t.Errorf("the last byte: %+v", p)
	}
	b, _ := must[handleView](a, "run_command", args{"command": `printf 'a\377b'`})
	if want := base64.StdEncoding.EncodeToString([]byte("a\xffb")); !b.Stdout.Base64 || b.Stdout.Text != want {
		t.Errorf("not UTF-8: %+v, want %s", b.Stdout, want)
	}
	if why := a.refused("read_output", args{"handle": v.Handle, "source": "stdin"}); !strings.Contains(why, "stdout") {
		t.Errorf("a wrong source: %s", why)
	}
}

// TestArguments: what a model may send instead of the right thing. Values of
// variables are in no answer, not even of an error.
func TestArguments(t *testing.T) {
	a := newRig(t).connect(nil)
	const secret = "s3cret-4711"
	for name, c := range map[string]struct {
		tool string
		in   args
		says string
	}{
		"nothing":             {"run_command", nil, "give command"},
		"both":                {"run_command", args{"command": "true", "argv": []string{"true"}}, "not both"},
		"both kinds of stdin": {"run_command", args{"command": "true", "stdin": "x", "open_stdin": true}, "not both"},
		"unknown":             {"run_command", args{"cmd": "true"}, `no argument "cmd"; there are: argv, background_after_s, command`},
		"argv is text":        {"run_command", args{"argv": "ls -l"}, "argv must be an array of strings, not a string"},
		"argv holds a number": {"run_command", args{"argv": []any{"sleep", 1}}, "argv[1] must be a string, not a number"},
		"argv holds null":     {"run_command", args{"argv": []any{nil}}, "argv[0] must be a string, not null"},
		"env is an array":     {"run_command", args{"command": "true", "env": []string{"A=" + secret}}, "env must be an object"},
		"env holds a number":  {"run_command", args{"command": "true", "env": args{"A": 4711}}, "env.A must be a string, not a number"},
		"env holds an object": {"run_command", args{"command": "true", "env": args{"A": args{"x": secret}}}, "env.A must be a string"},
		"env without a name":  {"run_command", args{"command": "true", "env": args{"": secret}}, "no name of a variable"},
		"env with NUL":        {"run_command", args{"command": "true", "env": args{"A": secret + "\x00"}}, "NUL"},
		"env named with =":    {"run_command", args{"command": "true", "env": args{"A=" + "b": secret}}, "no name of a variable"},
		"negative":            {"run_command", args{"command": "true", "deadline_s": -1}, "less than 0"},
		"endless":             {"run_command", args{"command": "true", "background_after_s": 1e300}, "too much"},
		"half a byte":         {"run_command", args{"command": "true", "max_bytes": 0.5}, "whole number"},
		"no such dir":         {"run_command", args{"command": "true", "env": args{"A": secret}, "dir": "/no/such"}, "/no/such"},
		"no handle":           {"wait", nil, "the argument handle is missing: id or name"},
		"empty handle":        {"wait", args{"handle": ""}, "handle is empty"},
		"unknown handle":      {"wait", args{"handle": "nobody"}, "list shows the handles"},
		"of cancel":           {"cancel", args{"handle": "nobody"}, "list shows the handles"},
		"no pattern":          {"wait_for_output", args{"handle": "x"}, "pattern is missing"},
		"not a regex":         {"wait_for_output", args{"handle": "x", "pattern": "(", "regex": true}, ""},
		"no batch":            {"acknowledge", nil, "batch is missing"},
		"unknown batch":       {"acknowledge", args{"batch": "b-1"}, ""},
		"nothing to write":    {"write_stdin", args{"handle": "x"}, "text to write, or close"},
	} {
		t.Run(name, func(t *testing.T) {
			why := a.refused(c.tool, c.in)
			if !strings.Contains(why, c.says) || strings.Contains(why, "4711") || strings.Contains(why, "procsup ") {
				t.Errorf("it says %q, want %q in it, and neither a value nor a command line of procsup", why, c.says)
			}
		})
	}
	if _, err := a.CallTool(t.Context(), &sdk.CallToolParams{Name: "rm_rf"}); err == nil || !strings.Contains(err.Error(), "unknown tool") {
		t.Errorf("an unknown tool: %v", err)
	}
}

// TestVariablesStayInside: neither an answer, nor a resource, nor the state on
// disk shows the value of a variable.
func TestVariablesStayInside(t *testing.T) {
	r := newRig(t)
	a := r.connect(nil)
	const secret = "s3cret-in-env"
	v, res := must[handleView](a, "run_command", args{"command": `test -n "$TOKEN" && exec sleep 600`, "env": args{"TOKEN": secret}, "background_after_s": 0, "name": "held"})
	_, list := must[listOutput](a, "list", nil)
	record, err := a.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: handleURI(handles.ID(v.Handle))})
	if err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]string{"answer": text(res), "list": text(list), "resource": record.Contents[0].Text} {
		if strings.Contains(s, secret) {
			t.Errorf("the %s shows it: %s", what, s)
		}
	}
	must[handleView](a, "cancel", args{"handle": "held"})
	err = filepath.WalkDir(r.state, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), secret) {
			t.Errorf("%s holds it", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWriteStdin(t *testing.T) {
	a := newRig(t).connect(nil)
	v, _ := must[handleView](a, "run_command", args{"command": "read a; echo got $a; read b; echo got $b", "open_stdin": true, "background_after_s": 0})
	must[handleView](a, "write_stdin", args{"handle": v.Handle, "text": "one\n"})
	a.told(v.Handle, "got one")
	must[handleView](a, "write_stdin", args{"handle": v.Handle, "text": "two\n"})
	end, _ := must[handleView](a, "wait", args{"handle": v.Handle})
	if end.Stdout.Text != "got one\ngot two\n" {
		t.Errorf("%+v", end.Stdout)
	}
	if why := a.refused("write_stdin", args{"handle": v.Handle, "text": "three"}); !strings.Contains(why, "read_output still gives") {
		t.Errorf("to one that has ended: %s", why)
	}
	c, _ := must[handleView](a, "run_command", args{"argv": []string{"cat"}, "open_stdin": true, "background_after_s": 0})
	must[handleView](a, "write_stdin", args{"handle": c.Handle, "text": "all of it", "close": true})
	if end, _ := must[handleView](a, "wait", args{"handle": c.Handle}); end.Status != "completed" || end.Stdout.Text != "all of it" {
		t.Errorf("closed: %+v", end)
	}
	w := a.background("exec sleep 600")
	if why := a.refused("write_stdin", args{"handle": w, "text": "x"}); !strings.Contains(why, "open_stdin") {
		t.Errorf("without open_stdin: %s", why)
	}
}

func TestWaitForOutput(t *testing.T) {
	a := newRig(t).connect(nil)
	h := a.background(`echo before; read x </dev/null; echo 'Listening on :8080'; exec sleep 600`)
	for _, in := range []args{
		{"handle": h, "pattern": "before"}, // written before counts
		{"handle": h, "pattern": `Listening on :(\d+)`, "regex": true},
		{"handle": h, "pattern": "Listening", "source": "stdout", "from": 3},
	} {
		w, res := must[waitOutputOutput](a, "wait_for_output", in)
		if w.Outcome != "matched" || w.Source != "stdout" || res.IsError || !w.Handle.Running {
			t.Errorf("%v: %+v", in, w)
		}
	}
	w, res := must[waitOutputOutput](a, "wait_for_output", args{"handle": h, "pattern": "never", "timeout_s": 0.05})
	if w.Outcome != "timed_out" || res.IsError || !strings.Contains(text(res), "Listening on") { // D6: an observation that timed out is working
		t.Errorf("not written: %+v %s", w, text(res))
	}
	gone := a.background("echo why it failed; exit 4")
	w, res = must[waitOutputOutput](a, "wait_for_output", args{"handle": gone, "pattern": "never"})
	if w.Outcome != "exited" || !res.IsError || !strings.Contains(text(res), "why it failed") {
		t.Errorf("ended: %+v %s", w, text(res))
	}
}

func TestList(t *testing.T) {
	r := newRig(t)
	a, other := r.connect(nil), r.connect(nil)
	other.background("exec sleep 600")
	h := a.background("exec sleep 600")
	must[handleView](a, "run_command", args{"command": "true"})
	if l, _ := must[listOutput](a, "list", nil); len(l.Handles) != 1 || l.Handles[0].Handle != h {
		t.Errorf("running: %+v", l)
	}
	if l, _ := must[listOutput](a, "list", args{"all": true}); len(l.Handles) != 2 {
		t.Errorf("all: %+v", l)
	}
}

func TestHundredCalls(t *testing.T) {
	a := newRig(t).connect(nil)
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), long)
			defer cancel()
			var v handleView
			in := args{"command": fmt.Sprintf("echo %d; exit %d", i, i%7)}
			if _, err := a.call(ctx, "run_command", in, &v); err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			if v.ExitCode == nil || *v.ExitCode != i%7 || v.Stdout == nil || v.Stdout.Text != fmt.Sprintln(i) {
				t.Errorf("%d: %+v", i, v)
			}
		})
	}
	calls.Wait()
	if b, _ := must[takeOutput](a, "take_finished", nil); b.Count != 0 {
		t.Errorf("%d ends are owed again", b.Count)
	}
}
