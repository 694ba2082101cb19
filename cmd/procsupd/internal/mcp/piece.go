package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"unicode/utf8"

	"procsup/capture"
	"procsup/handles"
	"procsup/supervisor/wire"
)

// A piece is a range of a stream: runs of bytes, with gaps between them.
type piece struct {
	runs            []run
	from, to, total int64
	omitted         int64
}

// A run is bytes, and what is missing behind them.
type run struct {
	b    []byte
	gap  int64
	hint string // how to get what is missing
}

// read reads at most limit bytes of a stream. No rune is cut at its end while
// more can follow.
func (s *server) read(ctx context.Context, rec *handles.Record, source string, from, limit int64) (*piece, error) {
	p := &piece{from: from, to: from, runs: []run{{}}}
	var b bytes.Buffer
	flush := func(gap int64) {
		last := &p.runs[len(p.runs)-1]
		last.b, last.gap = slices.Clone(b.Bytes()), gap
		p.to += int64(b.Len()) + gap
		p.omitted += gap
		b.Reset()
	}
	err := s.c.Output(ctx, string(rec.HandleID), wire.OutputQuery{Source: source, From: from, Limit: limit}, &b,
		func(o wire.OutputPart) { p.from, p.to, p.total = o.From, o.From, o.Total },
		func(r handles.Range) {
			flush(r.To - r.From)
			p.runs = append(p.runs, run{})
		})
	if err != nil {
		return nil, err
	}
	flush(0)
	if last := &p.runs[len(p.runs)-1]; p.to < p.total {
		cut := tornRune(last.b)
		last.b, p.to = last.b[:len(last.b)-cut], p.to-int64(cut)
	}
	return p, nil
}

// join puts a later piece behind this one.
func (p *piece) join(later *piece, hint string) {
	gap := later.from - p.to
	last := &p.runs[len(p.runs)-1]
	last.gap, last.hint = gap, hint
	p.runs = append(p.runs, later.runs...)
	p.to, p.total, p.omitted = later.to, later.total, p.omitted+gap+later.omitted
}

func (p *piece) bytes() []byte {
	var b []byte
	for _, r := range p.runs {
		b = append(b, r.b...)
	}
	return b
}

// view makes text of it, with a word at each gap. What is not UTF-8 is base64,
// up to the first gap, so that offsets can be told from it.
func (p *piece) view(lines bool) *textView {
	t := &textView{From: p.from, To: p.to, Total: p.total, Omitted: p.omitted}
	var text []byte
	for i, r := range p.runs {
		b, before := r.b, lead(r.b)
		if i > 0 || p.from > 0 { // it begins anywhere
			b = b[before:]
		}
		if i == 0 && p.from > 0 {
			t.From += int64(before)
		}
		if r.gap > 0 {
			torn, next := tornRune(b), lead(p.runs[i+1].b)
			b, r.gap = b[:len(b)-torn], r.gap+int64(torn+next)
			t.Omitted += int64(torn + next)
		}
		if lines {
			b = asLines(b)
		}
		text = append(text, b...)
		switch {
		case r.gap == 0:
		case r.hint != "":
			text = fmt.Appendf(text, "\n[… %d bytes omitted: %s …]\n", r.gap, r.hint)
		default:
			text = fmt.Appendf(text, "\n[… %d bytes were not kept …]\n", r.gap)
		}
	}
	if utf8.Valid(text) {
		t.Text = string(text)
		return t
	}
	first := p.runs[0].b
	t.Base64, t.Text = true, base64.StdEncoding.EncodeToString(first)
	t.From, t.To, t.Omitted = p.from, p.from+int64(len(first)), 0
	return t
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

// lead is how many bytes at the beginning end a rune that is not there.
func lead(b []byte) int {
	n := 0
	for n < len(b) && !utf8.RuneStart(b[n]) {
		n++
	}
	if n >= utf8.UTFMax {
		return 0 // no rune is that long
	}
	return n
}

// asLines is text as a terminal leaves it: no escape sequences, and of a line
// that was written over and over the last.
func asLines(b []byte) []byte {
	var strip capture.Strip // last: it takes out the carriage returns that lines needs
	var lines capture.Lines
	return strip.Append(nil, lines.Flush(lines.Append(nil, b)))
}
