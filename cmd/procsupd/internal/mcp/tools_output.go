package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
	"procsup/supervisor/wire"
)

type waitOutputInput struct {
	Handle  string  `json:"handle" jsonschema:"id or name of the command"`
	Pattern string  `json:"pattern" jsonschema:"text to wait for; what was written before counts too"`
	Regex   bool    `json:"regex,omitempty" jsonschema:"pattern is an RE2 regular expression"`
	Source  string  `json:"source,omitempty" jsonschema:"stdout or stderr; default both"`
	From    int64   `json:"from,omitempty" jsonschema:"offset to begin at; default 0"`
	Timeout float64 `json:"timeout_s,omitempty" jsonschema:"give up after so many seconds; nothing is cancelled. Default 30"`
}

type waitOutputOutput struct {
	Outcome string     `json:"outcome" jsonschema:"matched, exited (it ended without the text) or timed_out"`
	Source  string     `json:"source,omitempty"`
	Text    string     `json:"text,omitempty" jsonschema:"what matched"`
	From    int64      `json:"from"`
	To      int64      `json:"to"`
	Handle  handleView `json:"handle"`
}

type readInput struct {
	Handle   string `json:"handle" jsonschema:"id or name of the command"`
	Source   string `json:"source,omitempty" jsonschema:"stdout (default) or stderr"`
	From     *int64 `json:"from,omitempty" jsonschema:"offset to begin at; negative: so many bytes before the end. Without it: head and tail"`
	MaxBytes int    `json:"max_bytes,omitempty" jsonschema:"most bytes; default 20000"`
	Raw      bool   `json:"raw,omitempty" jsonschema:"keep ANSI escapes and carriage returns"`
}

type writeInput struct {
	Handle string `json:"handle" jsonschema:"id or name of a command that was started with open_stdin"`
	Text   string `json:"text,omitempty" jsonschema:"what to write; a newline is not added"`
	Close  bool   `json:"close,omitempty" jsonschema:"close its standard input then"`
}

func (s *server) outputTools(m *sdk.Server) {
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true}
	addTool(m, &sdk.Tool{
		Name: "wait_for_output", Title: "Wait for output", Annotations: reads,
		Description: "Wait until a command has written some text, such as the ready line of a server. Answers at once when it was written before, and when the command ends without.",
	}, s.waitForOutput)
	addTool(m, &sdk.Tool{
		Name: "read_output", Title: "Read output", Annotations: reads,
		Description: "Read what a command wrote, from an offset or head and tail, while it runs or after its end. Says exactly what is left out. Escape sequences and overwritten progress lines are taken out unless raw.",
	}, s.readOutput)
	addTool(m, &sdk.Tool{
		Name: "write_stdin", Title: "Write to standard input",
		Description: "Write text to the standard input of a running command that was started with open_stdin, and close it if asked.",
	}, s.writeStdin)
}

func (s *server) waitForOutput(ctx context.Context, _ *sdk.CallToolRequest, in waitOutputInput) (*sdk.CallToolResult, waitOutputOutput, error) {
	timeout := seconds(in.Timeout)
	if timeout <= 0 {
		timeout = foreground
	}
	req := wire.WaitOutput{Pattern: in.Pattern, Regex: in.Regex, Source: in.Source, From: in.From, TimeoutMS: max(1, timeout.Milliseconds())}
	w, err := reach(ctx, s, func() (*wire.OutputWaited, error) { return s.c.WaitOutput(ctx, in.Handle, req) })
	if err != nil {
		return nil, waitOutputOutput{}, err
	}
	out := waitOutputOutput{Outcome: w.Status, Source: w.Source, Text: w.Text, From: w.From, To: w.To}
	if w.Status == wire.Matched {
		out.Handle = viewOf(w.Record)
		return s.say(fmt.Sprintf("matched on %s at %d: %s\n", w.Source, w.From, w.Text), false), out, nil
	}
	out.Handle = s.withOutput(ctx, w.Record, defaultTail, true)
	text := fmt.Sprintf("not written within %v: %s\n", timeout, out.Handle.headline())
	if w.Status == wire.Exited {
		text = "it ended without writing that: " + out.Handle.headline() + "\n"
	}
	return s.say(text+out.Handle.outputs(), w.Status == wire.Exited), out, nil
}

func (s *server) readOutput(ctx context.Context, _ *sdk.CallToolRequest, in readInput) (*sdk.CallToolResult, textView, error) {
	if in.Source == "" {
		in.Source = "stdout"
	}
	rec, err := reach(ctx, s, func() (*handles.Record, error) { return s.c.Show(ctx, in.Handle) })
	if err != nil {
		return nil, textView{}, err
	}
	var t *textView
	if in.From == nil {
		t, err = s.ends(ctx, rec, in.Source, in.MaxBytes, !in.Raw)
	} else {
		t, err = s.part(ctx, rec, in.Source, *in.From, size(in.MaxBytes), !in.Raw)
	}
	if err != nil {
		return nil, textView{}, err
	}
	if t == nil {
		return nil, textView{}, fmt.Errorf("%s has no %s of its own", rec.HandleID, in.Source)
	}
	v := viewOf(rec)
	return s.say(fmt.Sprintf("%s[%s bytes %d to %d of %d, %d omitted; %s]\n", t.shown(), in.Source, t.From, t.To, t.Total, t.Omitted, v.headline()), false), *t, nil
}

// writeTime bounds how long a command is given to read what is written to it.
const writeTime = 10 * time.Second

func (s *server) writeStdin(ctx context.Context, _ *sdk.CallToolRequest, in writeInput) (*sdk.CallToolResult, handleView, error) {
	if in.Text == "" && !in.Close {
		return nil, handleView{}, errors.New("give text to write, or close")
	}
	bound, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	rec, err := reach(bound, s, func() (*handles.Record, error) { return s.c.Send(bound, in.Handle, []byte(in.Text), in.Close) })
	if err != nil && ctx.Err() == nil && bound.Err() != nil {
		err = fmt.Errorf("%s did not read all of it within %v: part of it may have arrived, and standard input is still open", in.Handle, writeTime)
	}
	if err != nil {
		return nil, handleView{}, err
	}
	v := viewOf(rec)
	return s.say(fmt.Sprintf("wrote %d bytes to %s\n", len(in.Text), rec.HandleID), false), v, nil
}
