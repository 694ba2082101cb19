package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/capture"
	"procsup/handles"
	"procsup/supervisor/wire"
)

// defaultBytes is how much of each stream an answer carries unless it is asked
// for more or less; maxBytes is the most.
const (
	defaultBytes = 20_000
	maxBytes     = 1 << 20
)

// A handleView is a command as a model sees it.
type handleView struct {
	Handle     string    `json:"handle" jsonschema:"id of the command for the other tools"`
	Name       string    `json:"name,omitempty"`
	Command    string    `json:"command"`
	Status     string    `json:"status" jsonschema:"starting, running, stopping; completed (exit 0), failed, killed (by a cancel or a deadline), cancelled, lost, interrupted"`
	Running    bool      `json:"running" jsonschema:"it has not ended"`
	Cause      string    `json:"cause,omitempty" jsonschema:"why it was killed"`
	ExitCode   *int      `json:"exit_code,omitempty"`
	Signal     string    `json:"signal,omitempty" jsonschema:"the signal it died of"`
	Error      string    `json:"error,omitempty"`
	StartedAt  time.Time `json:"started_at"`
	DurationMS int64     `json:"duration_ms"`
	Left       []string  `json:"left,omitempty" jsonschema:"processes that could not be ended"`
	Stdout     *textView `json:"stdout,omitempty"`
	Stderr     *textView `json:"stderr,omitempty"`
}

// A textView is a part of one stream.
type textView struct {
	Text    string `json:"text" jsonschema:"the bytes as text; base64 when encoding says so"`
	From    int64  `json:"from" jsonschema:"offset of the first byte"`
	To      int64  `json:"to" jsonschema:"offset behind the last byte; go on reading from here"`
	Total   int64  `json:"total" jsonschema:"bytes the command wrote so far"`
	Omitted int64  `json:"omitted" jsonschema:"bytes between from and to that are left out, where the text says so"`
	Base64  bool   `json:"base64,omitempty"`
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
	var b strings.Builder
	b.WriteString(v.headline() + "\n")
	for _, t := range []struct {
		name string
		text *textView
	}{{"stdout", v.Stdout}, {"stderr", v.Stderr}} {
		if t.text != nil && t.text.Total > 0 {
			fmt.Fprintf(&b, "--- %s\n%s", t.name, t.text.Text)
			if !strings.HasSuffix(t.text.Text, "\n") {
				b.WriteByte('\n')
			}
		}
	}
	if v.Running {
		b.WriteString("It goes on. wait_for_output and wait tell when something happens; read_output reads more; cancel ends it.\n")
	}
	return s.say(b.String(), v.failed())
}

// say is a text answer, with what finished meanwhile.
func (s *server) say(text string, failed bool) *sdk.CallToolResult {
	if n := s.owed.Load(); n > 0 {
		text += fmt.Sprintf("(%d finished in the background: take_finished gives the results)\n", n)
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: failed}
}

// withOutput fills in head and tail of both streams.
func (s *server) withOutput(ctx context.Context, rec *handles.Record, most int, lines bool) (handleView, error) {
	v := viewOf(rec)
	if rec.Output == nil {
		return v, nil
	}
	var err error
	if rec.Output.Stdout != nil {
		if v.Stdout, err = s.ends(ctx, rec, "stdout", most, lines); err != nil {
			return v, err
		}
	}
	if rec.Output.Stderr != nil {
		v.Stderr, err = s.ends(ctx, rec, "stderr", most, lines)
	}
	return v, err
}

// ends is head and tail of a stream.
func (s *server) ends(ctx context.Context, rec *handles.Record, source string, most int, lines bool) (*textView, error) {
	total := rec.Output.Stdout
	if source == "stderr" {
		total = rec.Output.Stderr
	}
	n, limit := total.Bytes, int64(size(most))
	if n <= limit {
		return s.part(ctx, rec, source, 0, limit, lines)
	}
	head, err := s.part(ctx, rec, source, 0, limit-limit/2, lines)
	if err != nil {
		return nil, err
	}
	tail, err := s.part(ctx, rec, source, n-limit/2, limit/2, lines)
	if err != nil {
		return nil, err
	}
	gap := tail.From - head.To
	t := &textView{From: head.From, To: tail.To, Total: tail.Total, Omitted: head.Omitted + gap + tail.Omitted, Base64: head.Base64 || tail.Base64}
	if t.Base64 {
		t.Text = head.Text + tail.Text // two texts of base64, each padded
		return t, nil
	}
	t.Text = head.Text + fmt.Sprintf("\n[… %d bytes omitted: read_output from %d …]\n", gap, head.To) + tail.Text
	return t, nil
}

func size(most int) int {
	switch {
	case most <= 0:
		return defaultBytes
	case most > maxBytes:
		return maxBytes
	}
	return most
}

// part reads at most limit bytes of a stream. No rune is cut at its end while
// more can follow; ranges that were not kept are marked.
func (s *server) part(ctx context.Context, rec *handles.Record, source string, from, limit int64, lines bool) (*textView, error) {
	var b bytes.Buffer
	t := &textView{From: from, To: from}
	var gaps []string
	err := s.c.Output(ctx, string(rec.HandleID), wire.OutputQuery{Source: source, From: from, Limit: limit}, &b,
		func(p wire.OutputPart) { t.From, t.To, t.Total = p.From, p.From, p.Total },
		func(r handles.Range) {
			t.Omitted += r.To - r.From
			mark := fmt.Sprintf("\n[… %d bytes were not kept …]\n", r.To-r.From)
			gaps = append(gaps, mark)
			b.WriteString(mark)
		})
	if err != nil {
		return nil, err
	}
	raw := b.Bytes()
	written := int64(len(raw)) - int64(len(strings.Join(gaps, "")))
	if cut := tornRune(raw); cut > 0 && t.From+written+t.Omitted < t.Total {
		raw, written = raw[:len(raw)-cut], written-int64(cut)
	}
	t.To = t.From + written + t.Omitted
	if lines {
		raw = asLines(raw)
	}
	if !utf8.Valid(raw) {
		t.Base64, t.Text = true, base64.StdEncoding.EncodeToString(raw)
		return t, nil
	}
	t.Text = string(raw)
	return t, nil
}

// tornRune is how many bytes at the end begin a rune that is not whole.
func tornRune(b []byte) int {
	for i := 1; i <= min(len(b), utf8.UTFMax-1); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

// asLines is text as a terminal leaves it: no escape sequences, and of a line
// that was written over and over the last.
func asLines(b []byte) []byte {
	var strip capture.Strip
	var lines capture.Lines
	out := lines.Append(nil, strip.Append(nil, b))
	return lines.Flush(out)
}
