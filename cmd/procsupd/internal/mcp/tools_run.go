package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// foreground is after how long a command goes to the background unless a call
// says otherwise; first is how long one is waited for within the start itself.
const (
	foreground = 30 * time.Second
	first      = 200 * time.Millisecond
)

type runInput struct {
	Command         string            `json:"command,omitempty" jsonschema:"a command line for sh -c; give this or argv"`
	Argv            []string          `json:"argv,omitempty" jsonschema:"program and arguments, without a shell; give this or command"`
	Dir             string            `json:"dir,omitempty" jsonschema:"working directory, absolute or relative to the server's"`
	Env             map[string]string `json:"env,omitempty" jsonschema:"variables to set besides the inherited ones; their values are never shown again"`
	Name            string            `json:"name,omitempty" jsonschema:"a name for the handle, unique among running commands; the other tools take it"`
	BackgroundAfter *float64          `json:"background_after_s,omitempty" jsonschema:"answer after so many seconds even if it still runs; it goes on in the background. 0 = at once, for servers; default 30"`
	Deadline        float64           `json:"deadline_s,omitempty" jsonschema:"end the command and all its processes after so many seconds; 0 = never"`
	Stdin           string            `json:"stdin,omitempty" jsonschema:"text for its standard input, which is closed then"`
	OpenStdin       bool              `json:"open_stdin,omitempty" jsonschema:"keep standard input open for write_stdin; without it and stdin it is empty"`
	MaxBytes        int               `json:"max_bytes,omitempty" jsonschema:"most bytes of each stream in the answer, head and tail; default 20000"`
	Raw             bool              `json:"raw,omitempty" jsonschema:"keep ANSI escapes and carriage returns in the answer"`
}

func (s *server) runTools(m *sdk.Server) {
	open := true
	addTool(m, &sdk.Tool{
		Name: "run_command", Title: "Run a command",
		Description: "Run a shell command (command) or a program (argv). Answers when it has ended, with its exit code and output, " +
			"or after background_after_s with a handle while it goes on. All its processes are ended when it is cancelled, at its deadline, or when this connection ends. " +
			"For a server: background_after_s 0, then wait_for_output for its ready line.",
		Annotations: &sdk.ToolAnnotations{OpenWorldHint: &open},
	}, s.runCommand)
}

func (s *server) runCommand(ctx context.Context, call *sdk.CallToolRequest, in runInput) (*sdk.CallToolResult, handleView, error) {
	req, err := s.request(in)
	if err != nil {
		return nil, handleView{}, err
	}
	after := foreground
	if in.BackgroundAfter != nil {
		after = seconds(*in.BackgroundAfter)
	}
	if in.Stdin != "" {
		if req.Stdin, err = inputFile(in.Stdin); err != nil {
			return nil, handleView{}, fmt.Errorf("keep standard input: %w", err)
		}
		defer os.Remove(req.Stdin)
	}
	moment := min(after, first)
	rec, err := s.start(ctx, req, moment)
	if err != nil {
		return nil, handleView{}, err
	}
	if !rec.Status.Terminal() && after > moment {
		stop := s.progress(ctx, call, rec.HandleID)
		rec, err = s.await(ctx, rec, after-moment)
		stop()
		if err != nil {
			return nil, handleView{}, err
		}
	}
	v := s.withOutput(ctx, rec, in.MaxBytes, !in.Raw)
	return s.answer(&v), v, nil
}

// request checks a call and makes a start of it.
func (s *server) request(in runInput) (*wire.Start, error) {
	req := &wire.Start{Command: in.Argv, Session: s.session, Name: in.Name, DeadlineMS: seconds(in.Deadline).Milliseconds(), Lease: "awaited", NoStoreEnv: true}
	switch {
	case in.Command != "" && len(in.Argv) > 0:
		return nil, errors.New("give command or argv, not both")
	case in.Command != "":
		req.Command = []string{"/bin/sh", "-c", in.Command}
	case len(in.Argv) == 0 || in.Argv[0] == "":
		return nil, errors.New("give command, a line for the shell, or argv, a program with its arguments")
	}
	if in.Stdin != "" && in.OpenStdin {
		return nil, errors.New("give stdin, after which standard input is closed, or open_stdin and write_stdin then, not both")
	}
	if in.Deadline > 0 {
		req.DeadlineMS = max(1, req.DeadlineMS) // 0 would be none
	}
	for name, value := range in.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return nil, fmt.Errorf("env: %.80q is no name of a variable, or its value holds a NUL byte", name)
		}
	}
	req.Dir = s.o.Dir
	if in.Dir != "" {
		if req.Dir = in.Dir; !filepath.IsAbs(req.Dir) {
			req.Dir = filepath.Join(s.o.Dir, in.Dir)
		}
	}
	req.Env = slices.DeleteFunc(slices.Clone(s.o.Env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, set := in.Env[name]
		return set
	})
	for _, name := range slices.Sorted(maps.Keys(in.Env)) {
		req.Env = append(req.Env, name+"="+in.Env[name])
	}
	if in.OpenStdin {
		req.Stdin = "pipe"
	}
	if mask, ok := platform.Umask(); ok {
		req.Umask = &mask
	}
	return req, nil
}

// usable is an environment without what cannot be sent, which is said.
func usable(env []string, log io.Writer) []string {
	out := make([]string, 0, len(env))
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "": // no variable: programs ignore it
		case !utf8.ValidString(kv):
			fmt.Fprintf(log, "procsup: mcp: the variable %q is not UTF-8 and is left out\n", name)
		default:
			out = append(out, kv)
		}
	}
	return out
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// start starts a command and gives it a moment to end.
func (s *server) start(ctx context.Context, req *wire.Start, moment time.Duration) (*handles.Record, error) {
	ms := moment.Milliseconds()
	req.BackgroundMS = &ms
	whole := context.WithoutCancel(ctx) // bounded by the moment; a start is not left in doubt
	a, err := reach(whole, s, func() (*wire.Started, error) { return s.c.Start(whole, *req) })
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, s.abandon(a.HandleID)
	}
	rec := a.Record
	if rec == nil {
		if rec, err = s.c.Show(whole, string(a.HandleID)); err != nil {
			return nil, err
		}
	}
	if rec.Status.Terminal() && a.Batch == "" && rec.Delivery == handles.DeliveryPending {
		return s.await(ctx, rec, time.Millisecond) // an answer that was asked for twice does not take the end
	}
	return rec, s.settle(ctx, rec, a.Batch)
}

// inputFile keeps a text where the daemon can open it; it is there at once,
// whether the command reads or not.
func inputFile(text string) (path string, err error) {
	f, err := os.CreateTemp("", "procsup-stdin-")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
}

// await waits for the end of a command, which a cancelled call cancels.
func (s *server) await(ctx context.Context, rec *handles.Record, d time.Duration) (*handles.Record, error) {
	defer s.taking(rec.HandleID)()
	w, err := reach(ctx, s, func() (*wire.Waited, error) {
		return s.c.WaitTake(ctx, string(rec.HandleID), max(d, time.Millisecond))
	})
	switch {
	case err == nil:
		return w.Record, s.settle(ctx, w.Record, w.Batch)
	case ctx.Err() != nil:
		return nil, s.abandon(rec.HandleID)
	}
	return nil, fmt.Errorf("wait for %s, which goes on: %w", rec.HandleID, err)
}

// abandon ends a command whose call was cancelled, and takes its end: nobody
// waits for it.
func (s *server) abandon(id handles.ID) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	c, err := s.c.Cancel(ctx, string(id), wire.Cancel{Reason: "the call was cancelled", By: "user", Take: true})
	if err == nil {
		err = s.settle(ctx, c.Record, c.Batch)
	}
	return errors.Join(fmt.Errorf("the call was cancelled, and with it %s", id), err)
}

// progress tells how much a command wrote, while its call goes on, if the call
// asks for that. The result ends it.
func (s *server) progress(ctx context.Context, call *sdk.CallToolRequest, id handles.ID) (stop func()) {
	token := call.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with the command, or by stop, which waits for it
		defer close(done)
		var last time.Time
		var bytes int64
		_ = s.c.Events(ctx, string(id), false, func(e wire.Event) error {
			if e.Kind != wire.EventOutput {
				return nil
			}
			bytes += e.To - e.From
			if time.Since(last) < updateEvery {
				return nil
			}
			last = time.Now()
			return call.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(bytes), Message: fmt.Sprintf("%d bytes of output", bytes)})
		})
	}()
	return func() {
		cancel()
		<-done
	}
}
