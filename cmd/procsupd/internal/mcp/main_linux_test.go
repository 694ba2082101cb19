package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/client"
)

// long is much longer than anything here takes.
const long = time.Minute

var binDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if binDir != "" {
		os.RemoveAll(binDir)
	}
	os.Exit(code)
}

// built makes both binaries once, race-built when we are.
var built = sync.OnceValue(func() error {
	var err error
	if binDir, err = os.MkdirTemp("", "procsup-mcp-"); err != nil {
		return err
	}
	args := []string{"build", "-tags", "urfave_cli_no_docs", "-o", binDir}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "procsup/cmd/procsup", "procsup/cmd/procsupd")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return nil
})

// A rig is a daemon of its own that nobody has started yet. Its Cleanup ends it.
type rig struct {
	t             testing.TB
	socket, state string
	env           []string
	client        *client.Client // of the same daemon, in no session
}

func newRig(t testing.TB) *rig {
	t.Helper()
	if err := built(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pm") // short: a socket's path must fit
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, socket: filepath.Join(dir, "sock"), state: filepath.Join(dir, "state")}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PROCSUP_") && !strings.HasPrefix(kv, "PATH=") {
			r.env = append(r.env, kv)
		}
	}
	r.env = append(r.env, "PATH="+binDir+":"+os.Getenv("PATH"), "PROCSUP_SOCKET="+r.socket, "PROCSUP_STATE="+r.state, "GORACE=atexit_sleep_ms=0 log_path="+dir+"/race")
	r.client = client.New(client.Config{Socket: r.socket, State: r.state})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		if err := r.client.Shutdown(ctx); err != nil && !errors.Is(err, client.ErrNoDaemon) {
			t.Errorf("end the daemon: %v", err)
		}
		r.client.Close()
		races, _ := filepath.Glob(dir + "/race.*") // a daemon's stderr is nowhere
		for _, path := range races {
			b, _ := os.ReadFile(path)
			t.Errorf("%s", b)
		}
		os.RemoveAll(dir)
	})
	return r
}

// start starts the daemon.
func (r *rig) start() {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(binDir, "procsup"), "list")
	cmd.Env = r.env
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
}

// command is `procsup mcp`; it is killed after long.
func (r *rig) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), long)
	r.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "procsup"), append([]string{"mcp"}, args...)...)
	cmd.Env = r.env
	cmd.Dir = r.t.TempDir()
	cmd.Stderr = r.t.Output()
	return cmd
}

// An agent is an MCP client with its server.
type agent struct {
	*sdk.ClientSession
	t       testing.TB
	cmd     *exec.Cmd
	outputs map[string]*jsonschema.Resolved
}

// connect starts `procsup mcp` and connects to it.
func (r *rig) connect(o *sdk.ClientOptions) *agent {
	r.t.Helper()
	cmd := r.command()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(r.t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { s.Close() })
	a := &agent{ClientSession: s, t: r.t, cmd: cmd, outputs: map[string]*jsonschema.Resolved{}}
	tools, err := s.ListTools(r.t.Context(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		var schema *jsonschema.Schema
		b, err := json.Marshal(tool.OutputSchema)
		if err == nil {
			err = json.Unmarshal(b, &schema)
		}
		if err == nil {
			a.outputs[tool.Name], err = schema.Resolve(nil)
		}
		if err != nil {
			r.t.Fatalf("output schema of %s: %v", tool.Name, err)
		}
	}
	return a
}

type args = map[string]any

// call calls a tool, checks the structured answer against the schema, and gives
// it as out.
func (a *agent) call(ctx context.Context, name string, in args, out any) (*sdk.CallToolResult, error) {
	res, err := a.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: in})
	if err != nil {
		return nil, err
	}
	if res.StructuredContent == nil {
		if !res.IsError {
			a.t.Errorf("%s %v: no structured answer, and no error", name, in)
		}
		return res, nil
	}
	if err := a.outputs[name].Validate(res.StructuredContent); err != nil {
		a.t.Errorf("%s %v: the answer is not as its schema says: %v\n%v", name, in, err, res.StructuredContent)
	}
	if out == nil {
		return res, nil
	}
	b, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	return res, err
}

// must calls a tool that answers with T.
func must[T any](a *agent, name string, in args) (T, *sdk.CallToolResult) {
	a.t.Helper()
	var out T
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	res, err := a.call(ctx, name, in, &out)
	if err != nil {
		a.t.Fatalf("%s %v: %v", name, in, err)
	}
	if res.StructuredContent == nil {
		a.t.Fatalf("%s %v: %s", name, in, text(res))
	}
	return out, res
}

// refused calls a tool and gives the error that a model sees.
func (a *agent) refused(name string, in args) string {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	res, err := a.call(ctx, name, in, nil)
	if err != nil {
		a.t.Fatalf("%s %v: %v", name, in, err)
	}
	if !res.IsError || res.StructuredContent != nil {
		a.t.Fatalf("%s %v is no error: %s", name, in, text(res))
	}
	return text(res)
}

func text(res *sdk.CallToolResult) string {
	s := ""
	for _, c := range res.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			s += t.Text
		}
	}
	return s
}

// background starts a command and gives its handle.
func (a *agent) background(command string) string {
	a.t.Helper()
	v, _ := must[handleView](a, "run_command", args{"command": command, "background_after_s": 0})
	return v.Handle
}

// held starts a command that waits for a line of its stdin first.
func (a *agent) held(command string) string {
	a.t.Helper()
	v, _ := must[handleView](a, "run_command", args{"command": "read go; " + command, "open_stdin": true, "background_after_s": 0})
	return v.Handle
}

// told waits for a line of a command.
func (a *agent) told(handle, line string) {
	a.t.Helper()
	w, res := must[waitOutputOutput](a, "wait_for_output", args{"handle": handle, "pattern": line})
	if w.Outcome != "matched" {
		a.t.Fatalf("%s did not write %q: %s", handle, line, text(res))
	}
}

// ended waits at the daemon for the end of a command, and until its process is
// gone.
func (r *rig) ended(handle string) *handles.Record {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	w, err := r.client.Wait(ctx, handle, 0)
	if err != nil {
		r.t.Fatalf("wait for %s: %v", handle, err)
	}
	if !w.Record.Status.Terminal() {
		r.t.Fatalf("%s is still %s", handle, w.Record.Status)
	}
	if !platform.AwaitGone(w.Record.PID, long) {
		r.t.Fatalf("the process %d of %s is still there", w.Record.PID, handle)
	}
	return w.Record
}
