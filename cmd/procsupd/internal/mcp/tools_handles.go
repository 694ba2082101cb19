package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

type waitInput struct {
	Handle   string  `json:"handle" jsonschema:"id or name of the command"`
	Timeout  float64 `json:"timeout_s,omitempty" jsonschema:"give up waiting after so many seconds; the command goes on. 0 = 30"`
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
	sdk.AddTool(m, &sdk.Tool{
		Name: "wait", Title: "Wait for a command", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: false},
		Description: "Wait for a command in the background to end and get its exit code and output. That is the delivery of its result: take_finished does not give it again.",
	}, s.wait)
	sdk.AddTool(m, &sdk.Tool{
		Name: "cancel", Title: "End a command", Annotations: &sdk.ToolAnnotations{DestructiveHint: &ends, IdempotentHint: true},
		Description: "End a command and every process it started: a request to stop, then, after the grace, a kill. Answers when nothing of it is left, or says what is. One that has ended already is no error.",
	}, s.cancel)
	sdk.AddTool(m, &sdk.Tool{
		Name: "list", Title: "List commands", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true},
		Description: "List the commands of this connection, newest first: those that run, or all.",
	}, s.list)
}

func (s *server) wait(ctx context.Context, call *sdk.CallToolRequest, in waitInput) (*sdk.CallToolResult, handleView, error) {
	rec, err := s.c.Show(ctx, in.Handle)
	if err != nil {
		return nil, handleView{}, err
	}
	timeout := seconds(in.Timeout)
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	s.front(rec.HandleID, true)
	defer s.front(rec.HandleID, false)
	stop := s.progress(ctx, call, rec.HandleID)
	w, err := s.c.WaitTake(ctx, string(rec.HandleID), timeout) // cancelling the call cancels the wait alone
	stop()
	if err != nil {
		return nil, handleView{}, err
	}
	v, err := s.withOutput(ctx, w.Record, in.MaxBytes, true)
	if err == nil {
		err = s.settle(ctx, w.Batch)
	}
	if err != nil {
		return nil, handleView{}, err
	}
	s.recount(ctx)
	return s.answer(&v), v, nil
}

func (s *server) cancel(ctx context.Context, _ *sdk.CallToolRequest, in cancelInput) (*sdk.CallToolResult, handleView, error) {
	req := wire.Cancel{Reason: "cancelled through MCP", Take: true}
	if in.Grace != nil {
		if *in.Grace < 0 {
			return nil, handleView{}, fmt.Errorf("grace_s is negative")
		}
		ms := seconds(*in.Grace).Milliseconds()
		req.GraceMS = &ms
	}
	rec, err := s.c.Show(ctx, in.Handle)
	if err != nil {
		return nil, handleView{}, err
	}
	s.front(rec.HandleID, true)
	defer s.front(rec.HandleID, false)
	c, err := s.c.Cancel(ctx, string(rec.HandleID), req)
	if err != nil {
		return nil, handleView{}, err
	}
	if err := s.settle(ctx, c.Batch); err != nil { // its end is in this answer
		return nil, handleView{}, err
	}
	s.recount(ctx)
	v := viewOf(c.Record)
	text := v.headline() + "\n"
	if !c.Cancelled && !v.Running {
		text = "it had ended by itself, or nothing was left to end: " + text
	}
	if len(v.Left) > 0 {
		text += "these could not be ended: " + strings.Join(v.Left, "; ") + "\n"
	}
	return s.say(text, len(v.Left) > 0), v, nil
}

func (s *server) list(ctx context.Context, _ *sdk.CallToolRequest, in listInput) (*sdk.CallToolResult, listOutput, error) {
	l, err := s.c.List(ctx, client.Filter{Session: s.session, Live: !in.All, Limit: 200})
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

// recount brings the hint of what is owed up to date.
func (s *server) recount(ctx context.Context) {
	if s.owed.Load() == 0 {
		return
	}
	if p, err := s.c.Pending(ctx, false); err == nil {
		s.owed.Store(int64(p.Count))
	}
}
