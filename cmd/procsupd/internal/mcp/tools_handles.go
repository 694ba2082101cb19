package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

type waitInput struct {
	Handle   string  `json:"handle" jsonschema:"id or name of the command"`
	Timeout  float64 `json:"timeout_s,omitempty" jsonschema:"give up waiting after so many seconds; the command goes on. Default 30"`
	MaxBytes int     `json:"max_bytes,omitempty" jsonschema:"most bytes of each stream in the answer, head and tail; default 20000"`
}

type cancelInput struct {
	Handle string   `json:"handle" jsonschema:"id or name of the command"`
	Grace  *float64 `json:"grace_s,omitempty" jsonschema:"seconds between asking it to stop and killing it; default 2"`
}

type listInput struct {
	All bool `json:"all,omitempty" jsonschema:"ended ones too"`
}

type listOutput struct {
	Handles []handleView `json:"handles"`
}

func (s *server) handleTools(m *sdk.Server) {
	ends := true
	addTool(m, &sdk.Tool{
		Name: "wait", Title: "Wait for a command", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: false},
		Description: "Wait for a command in the background to end and get its exit code and output. That is the delivery of its result: take_finished does not give it again.",
	}, s.wait)
	addTool(m, &sdk.Tool{
		Name: "cancel", Title: "End a command", Annotations: &sdk.ToolAnnotations{DestructiveHint: &ends, IdempotentHint: true},
		Description: "End a command and every process it started: a request to stop, then, after the grace, a kill. Answers when nothing of it is left, or says what is. One that has ended already is no error.",
	}, s.cancel)
	addTool(m, &sdk.Tool{
		Name: "list", Title: "List commands", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true},
		Description: "List the commands of this connection, newest first: those that run, or all.",
	}, s.list)
}

func (s *server) wait(ctx context.Context, call *sdk.CallToolRequest, in waitInput) (*sdk.CallToolResult, handleView, error) {
	rec, err := reach(ctx, s, func() (*handles.Record, error) { return s.c.Show(ctx, in.Handle) })
	if err != nil {
		return nil, handleView{}, err
	}
	timeout := seconds(in.Timeout)
	if timeout <= 0 {
		timeout = foreground
	}
	stop := s.progress(ctx, call, rec.HandleID)
	w, err := s.waitEnd(ctx, rec, timeout)
	stop()
	if err != nil {
		return nil, handleView{}, err
	}
	v := s.withOutput(ctx, w.Record, in.MaxBytes, true)
	if err := s.settle(ctx, w.Record, w.Batch); err != nil {
		return nil, handleView{}, err
	}
	s.refresh(ctx)
	return s.answer(&v), v, nil
}

// waitEnd waits for an end and takes it, if it is owed to this connection.
// Cancelling the call cancels the wait alone: what was taken is given back.
func (s *server) waitEnd(ctx context.Context, rec *handles.Record, timeout time.Duration) (*wire.Waited, error) {
	if rec.SessionID != s.session {
		return reach(ctx, s, func() (*wire.Waited, error) { return s.c.Wait(ctx, string(rec.HandleID), timeout) })
	}
	defer s.taking(rec.HandleID)()
	w, err := reach(ctx, s, func() (*wire.Waited, error) { return s.c.WaitTake(ctx, string(rec.HandleID), timeout) })
	if ctx.Err() == nil {
		return w, err
	}
	return nil, errors.Join(errors.New("the wait was cancelled; the command goes on"), s.giveBack(rec.HandleID))
}

func (s *server) cancel(ctx context.Context, _ *sdk.CallToolRequest, in cancelInput) (*sdk.CallToolResult, handleView, error) {
	rec, err := reach(ctx, s, func() (*handles.Record, error) { return s.c.Show(ctx, in.Handle) })
	if err != nil {
		return nil, handleView{}, err
	}
	req := wire.Cancel{Reason: "cancelled through MCP", Take: rec.SessionID == s.session}
	if in.Grace != nil {
		ms := seconds(*in.Grace).Milliseconds()
		req.GraceMS = &ms
	}
	defer s.taking(rec.HandleID)()
	whole := context.WithoutCancel(ctx) // bounded by the grace; what was begun is seen to its end
	c, err := reach(whole, s, func() (*wire.Cancelled, error) { return s.c.Cancel(whole, string(rec.HandleID), req) })
	if err != nil {
		return nil, handleView{}, err
	}
	v := s.withOutput(whole, c.Record, defaultTail, true)
	if err := s.settle(whole, c.Record, c.Batch); err != nil { // its end is in this answer
		return nil, handleView{}, err
	}
	s.refresh(whole)
	text := v.headline() + "\n"
	if rec.Status.Terminal() {
		text = "it had ended before: " + text
	}
	if len(v.Left) > 0 {
		text += "these could not be ended: " + strings.Join(v.Left, "; ") + "\n"
	}
	return s.say(text+v.outputs(), len(v.Left) > 0), v, nil
}

func (s *server) list(ctx context.Context, _ *sdk.CallToolRequest, in listInput) (*sdk.CallToolResult, listOutput, error) {
	l, err := reach(ctx, s, func() (*wire.List, error) {
		return s.c.List(ctx, client.Filter{Session: s.session, Live: !in.All, Limit: 200})
	})
	if err != nil {
		return nil, listOutput{}, err
	}
	out := listOutput{Handles: []handleView{}}
	var b strings.Builder
	for i := range l.Handles {
		v := viewOf(&l.Handles[i])
		out.Handles = append(out.Handles, v)
		fmt.Fprintf(&b, "%s  %s\n", v.headline(), v.Command)
	}
	if len(out.Handles) == 0 {
		b.WriteString("no commands\n")
	}
	if l.More {
		b.WriteString("(and older ones)\n")
	}
	return s.say(b.String(), false), out, nil
}

// refresh brings the hint of what is owed up to date, if there was something.
func (s *server) refresh(ctx context.Context) {
	if s.owed.Load() > 0 {
		s.recount(ctx)
	}
}
