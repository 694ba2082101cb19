package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
)

// defaultBytes is how much of each stream an answer carries unless it is asked
// for more or less; maxBytes is the most.
const (
	defaultBytes = 20_000
	maxBytes     = 1 << 20
	defaultTail  = 4_000 // where output is not what was asked for
)

// A handleView is a command as a model sees it.
type handleView struct {
	Handle     string    `json:"handle" jsonschema:"id of the command for the other tools"`
	Name       string    `json:"name,omitempty" jsonschema:"the name it was given"`
	Command    string    `json:"command" jsonschema:"what was run"`
	Status     string    `json:"status" jsonschema:"starting, running, stopping; completed (exit 0), failed, killed (by a cancel or a deadline), cancelled, lost, interrupted"`
	Running    bool      `json:"running" jsonschema:"it has not ended"`
	Cause      string    `json:"cause,omitempty" jsonschema:"why it was killed"`
	ExitCode   *int      `json:"exit_code,omitempty" jsonschema:"left out while it runs, or when a signal ended it"`
	Signal     string    `json:"signal,omitempty" jsonschema:"the signal it died of"`
	Error      string    `json:"error,omitempty" jsonschema:"why it could not be started, or what went wrong with it"`
	StartedAt  time.Time `json:"started_at" jsonschema:"when it was started, RFC 3339"`
	DurationMS int64     `json:"duration_ms" jsonschema:"how long it ran, in milliseconds; 0 while it runs"`
	Left       []string  `json:"left,omitempty" jsonschema:"processes that could not be ended"`
	Stdout     *textView `json:"stdout,omitempty"`
	Stderr     *textView `json:"stderr,omitempty"`
	Note       string    `json:"note,omitempty" jsonschema:"what is wrong with this answer"`
}

// A textView is a part of one stream.
type textView struct {
	Text    string `json:"text" jsonschema:"the bytes as text, or in base64"`
	From    int64  `json:"from" jsonschema:"offset of the first byte"`
	To      int64  `json:"to" jsonschema:"offset behind the last byte; go on reading from here"`
	Total   int64  `json:"total" jsonschema:"bytes the command wrote so far"`
	Omitted int64  `json:"omitted" jsonschema:"bytes between from and to that are left out; the text says where"`
	Base64  bool   `json:"base64,omitempty" jsonschema:"it is not UTF-8: text is base64 of the bytes from from to to"`
}

func viewOf(rec *handles.Record) handleView {
	v := handleView{
		Handle: string(rec.HandleID), Name: rec.Name, Command: rec.Descriptor, Status: string(rec.Status), Running: !rec.Status.Terminal(),
		Cause: string(rec.Cause), ExitCode: rec.ExitCode, Signal: rec.Signal, Error: rec.Error, StartedAt: rec.StartedAt, DurationMS: rec.DurationMS,
	}
	for _, p := range rec.Cleanup.Survivors {
		v.Left = append(v.Left, fmt.Sprintf("%d %s", p.PID, p.Command))
	}
	return v
}

// failed reports whether a call about this command is an error for a model.
func (v *handleView) failed() bool { return !v.Running && v.Status != string(handles.Completed) }

// headline says in one line how a command stands.
func (v *handleView) headline() string {
	s := v.Status
	if v.Cause != "" {
		s += " by " + v.Cause
	}
	switch {
	case v.ExitCode != nil:
		s += fmt.Sprintf(", exit code %d", *v.ExitCode)
	case v.Signal != "":
		s += ", signal " + v.Signal
	}
	if v.Error != "" {
		s += ": " + v.Error
	}
	if v.Running {
		return fmt.Sprintf("%s is %s", v.Handle, s)
	}
	return fmt.Sprintf("%s %s after %v", v.Handle, s, time.Duration(v.DurationMS)*time.Millisecond)
}

// answer makes the text beside the structured result: what a model reads.
func (s *server) answer(v *handleView) *sdk.CallToolResult {
	text := v.headline() + "\n" + v.outputs()
	if v.Note != "" {
		text += "(" + v.Note + ")\n"
	}
	if v.Running {
		text += "It goes on. wait_for_output and wait tell when something happens; read_output reads more; cancel ends it.\n"
	}
	return s.say(text, v.failed())
}

// outputs is what both streams have to say.
func (v *handleView) outputs() string {
	text := ""
	for _, t := range []struct {
		name string
		text *textView
	}{{"stdout", v.Stdout}, {"stderr", v.Stderr}} {
		if t.text != nil && t.text.Total > 0 {
			text += "--- " + t.name + "\n" + t.text.shown()
		}
	}
	return text
}

// shown is the text for reading: whole lines, and a word where it is none.
func (t *textView) shown() string {
	text := t.Text
	if t.Base64 {
		text = fmt.Sprintf("(not UTF-8; %d bytes as base64)\n%s", t.To-t.From-t.Omitted, text)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// say is a text answer, with what finished meanwhile.
func (s *server) say(text string, failed bool) *sdk.CallToolResult {
	if n := s.owed.Load(); n > 0 {
		text += fmt.Sprintf("(%d finished in the background: take_finished gives the results)\n", n)
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: failed}
}

// withOutput fills in head and tail of both streams. Output that cannot be read
// does not hide how the command ended.
func (s *server) withOutput(ctx context.Context, rec *handles.Record, most int, lines bool) handleView {
	v := viewOf(rec)
	var err1, err2 error
	v.Stdout, err1 = s.ends(ctx, rec, "stdout", most, lines)
	v.Stderr, err2 = s.ends(ctx, rec, "stderr", most, lines)
	if err := errors.Join(err1, err2); err != nil {
		v.Note = "its output cannot be read: " + explain(err).Error()
	}
	return v
}

// ends is head and tail of a stream; nil if the command has none.
func (s *server) ends(ctx context.Context, rec *handles.Record, source string, most int, lines bool) (*textView, error) {
	o := streamOf(rec, source)
	switch limit := size(most); {
	case o == nil:
		return nil, nil
	case o.Bytes == 0 && rec.Status.Terminal():
		return &textView{}, nil
	case o.Bytes <= limit:
		return s.part(ctx, rec, source, 0, limit, lines)
	default:
		head, err := s.read(ctx, rec, source, 0, limit-limit/2)
		if err != nil {
			return nil, err
		}
		tail, err := s.read(ctx, rec, source, o.Bytes-limit/2, limit/2)
		if err != nil {
			return nil, err
		}
		head.join(tail, fmt.Sprintf("read_output from %d", head.to))
		return head.view(lines), nil
	}
}

func streamOf(rec *handles.Record, source string) *handles.StreamOutput {
	switch {
	case rec.Output == nil:
		return nil
	case source == "stderr":
		return rec.Output.Stderr
	}
	return rec.Output.Stdout
}

// part is a range of a stream; nil if the command has none.
func (s *server) part(ctx context.Context, rec *handles.Record, source string, from, limit int64, lines bool) (*textView, error) {
	if streamOf(rec, source) == nil {
		return nil, nil
	}
	p, err := s.read(ctx, rec, source, from, limit)
	if err != nil {
		return nil, err
	}
	return p.view(lines), nil
}

func size(most int) int64 {
	switch {
	case most <= 0:
		return defaultBytes
	case most > maxBytes:
		return maxBytes
	}
	return int64(most)
}
