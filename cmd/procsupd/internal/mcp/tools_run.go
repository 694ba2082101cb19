package mcp

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
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
	Env             map[string]string `json:"env,omitempty" jsonschema:"variables to set besides the inherited ones"`
	Name            string            `json:"name,omitempty" jsonschema:"a name for the handle, unique among running commands"`
	BackgroundAfter *float64          `json:"background_after_s,omitempty" jsonschema:"answer after so many seconds even if it still runs; it goes on in the background. 0 = at once, for servers; default 30"`
	Deadline        float64           `json:"deadline_s,omitempty" jsonschema:"end the command and all its processes after so many seconds; 0 = never"`
	Stdin           string            `json:"stdin,omitempty" jsonschema:"text for its standard input, which is closed then"`
	OpenStdin       bool              `json:"open_stdin,omitempty" jsonschema:"keep standard input open for write_stdin"`
	MaxBytes        int               `json:"max_bytes,omitempty" jsonschema:"most bytes of each stream in the answer, head and tail; default 20000"`
	Raw             bool              `json:"raw,omitempty" jsonschema:"keep ANSI escapes and carriage returns in the answer"`
}

func (s *server) runTools(m *sdk.Server) {
	open := true
	sdk.AddTool(m, &sdk.Tool{
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
	rec, err := s.start(ctx, req, min(after, first))
	if err != nil {
		return nil, handleView{}, err
	}
	s.front(rec.HandleID, true)
	defer s.front(rec.HandleID, false)
	if in.Stdin != "" {
		if _, err := s.c.Send(ctx, string(rec.HandleID), []byte(in.Stdin), true); err != nil && !errors.Is(err, handles.ErrEnded) && !errors.Is(err, handles.ErrConflict) {
			return nil, handleView{}, err
		}
	}
	if !rec.Status.Terminal() && after > first {
		stop := s.progress(ctx, call, rec.HandleID)
		rec, err = s.await(ctx, rec, after-first)
		stop()
		if err != nil {
			return nil, handleView{}, err
		}
	}
	v, err := s.withOutput(ctx, rec, in.MaxBytes, !in.Raw)
	if err != nil {
		return nil, handleView{}, err
	}
	return s.answer(&v), v, nil
}

// request checks a call and makes a start of it.
func (s *server) request(in runInput) (*wire.Start, error) {
	req := &wire.Start{Command: in.Argv, Session: s.session, Name: in.Name, DeadlineMS: seconds(in.Deadline).Milliseconds(), Lease: "awaited"}
	switch {
	case in.Command != "" && len(in.Argv) > 0:
		return nil, errors.New("give command or argv, not both")
	case in.Command != "":
		req.Command = []string{"/bin/sh", "-c", in.Command}
	case len(in.Argv) == 0 || in.Argv[0] == "":
		return nil, errors.New("give command, a line for the shell, or argv, a program with its arguments")
	}
	if in.Deadline < 0 || in.BackgroundAfter != nil && *in.BackgroundAfter < 0 {
		return nil, errors.New("deadline_s and background_after_s must not be negative")
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
	for name, value := range in.Env {
		req.Env = append(req.Env, name+"="+value)
	}
	if in.OpenStdin || in.Stdin != "" {
		req.Stdin = "pipe"
	}
	return req, nil
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// start starts a command and gives it a moment to end.
func (s *server) start(ctx context.Context, req *wire.Start, moment time.Duration) (*handles.Record, error) {
	ms := moment.Milliseconds()
	req.BackgroundMS = &ms
	a, err := s.c.Start(context.WithoutCancel(ctx), *req) // bounded by the moment; a start is not left in doubt
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, s.abandon(a.HandleID)
	}
	if a.Record == nil {
		return s.c.Show(ctx, string(a.HandleID))
	}
	return a.Record, s.settle(ctx, a.Batch)
}

// await waits for the end of a command, which a cancelled call cancels.
func (s *server) await(ctx context.Context, rec *handles.Record, d time.Duration) (*handles.Record, error) {
	w, err := s.c.WaitTake(ctx, string(rec.HandleID), max(d, time.Millisecond))
	if err == nil {
		return w.Record, s.settle(ctx, w.Batch)
	}
	if ctx.Err() != nil {
		return nil, s.abandon(rec.HandleID)
	}
	return nil, err
}

// abandon ends a command whose call was cancelled, and takes its end: nobody
// waits for it.
func (s *server) abandon(id handles.ID) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	c, err := s.c.Cancel(ctx, string(id), wire.Cancel{Reason: "the call was cancelled", By: "user", Take: true})
	if err == nil {
		err = s.settle(ctx, c.Batch)
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
			if time.Since(last) < 100*time.Millisecond {
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
