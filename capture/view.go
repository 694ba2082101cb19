package capture

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// A View is a part of a stream, ready for JSON. Nothing in it is changed or
// replaced: bytes that are valid UTF-8 are in Text, others in Base64, and no
// rune is cut.
type View struct {
	Encoding string  `json:"encoding"`         // "utf-8" or "base64": which of the two is meant
	Text     string  `json:"text,omitempty"`   // has a line of the form "[… N bytes omitted …]" at each gap
	Base64   string  `json:"base64,omitempty"` // has nothing at a gap
	From     int64   `json:"from"`
	To       int64   `json:"to"`
	Total    int64   `json:"total"`   // bytes the command wrote so far
	Omitted  int64   `json:"omitted"` // bytes between From and To that are not in it
	Gaps     []Range `json:"gaps,omitempty"`
}

// HeadTail returns the beginning and the end of a stream, together at most max
// bytes, from offset 0 to the present end. What does not fit, and what was not
// kept, is a gap. max <= 0 returns counts only.
func (l *Log) HeadTail(src Source, max int64) (View, error) {
	s := l.streams[src]
	total := s.total.Load()
	if total <= max {
		return s.view(0, Range{0, total})
	}
	max = clamp(max, 0, total)
	return s.view(0, Range{0, max - max/2}, Range{total - max/2, total})
}

// Tail returns the last bytes of a stream, at most max.
func (l *Log) Tail(src Source, max int64) (View, error) {
	s := l.streams[src]
	total := s.total.Load()
	from := clamp(total-max, 0, total)
	return s.view(from, Range{from, total})
}

// Range returns the bytes from the offset from on, at most max, for reading a
// stream in pages: go on at To. A rune that is not whole yet is left for the
// next page.
func (l *Log) Range(src Source, from, max int64) (View, error) {
	s := l.streams[src]
	total := s.total.Load()
	from = clamp(from, 0, total)
	ps, end, err := s.pieces(Range{from, clamp(from+max, from, total)})
	if err != nil {
		return View{}, err
	}
	if k := len(ps) - 1; k >= 0 && ps[k].end() == end && !(end == total && s.Ended()) {
		if cut := cutRune(ps[k].b); cut > 0 {
			end -= int64(len(ps[k].b) - cut)
			ps[k].b = ps[k].b[:cut]
		}
	}
	return assemble(ps, View{From: from, To: end, Total: total}), nil
}

func clamp(n, low, high int64) int64 { return min(max(n, low), high) }

// view makes a view of the ranges, which are in order; what is between them is
// a gap. Runes cut at an edge of what is there are left out.
func (s *Stream) view(from int64, rs ...Range) (View, error) {
	v := View{From: from, Total: rs[len(rs)-1].To, To: rs[len(rs)-1].To}
	live := !s.Ended()
	var all []piece
	for _, r := range rs {
		ps, _, err := s.pieces(r)
		if err != nil {
			return View{}, err
		}
		for _, p := range ps {
			if p.end() < v.Total || live {
				p.b = p.b[:cutRune(p.b)]
			}
			if p.off > 0 {
				k := continuation(p.b)
				if p.off == v.From {
					v.From += int64(k)
				}
				p.off, p.b = p.off+int64(k), p.b[k:]
			}
			if len(p.b) > 0 {
				all = append(all, p)
			}
		}
	}
	if k := len(all) - 1; k >= 0 && live && v.Total-all[k].end() < utf8.UTFMax {
		v.To = all[k].end() // the rest of the rune has not come
	}
	return assemble(all, v), nil
}

// assemble puts the pieces, which lie between v.From and v.To, into v.
func assemble(ps []piece, v View) View {
	var text, raw []byte
	valid := true
	off := v.From
	gap := func(to int64) {
		if to <= off {
			return
		}
		v.Gaps = append(v.Gaps, Range{off, to})
		v.Omitted += to - off
		if len(text) > 0 && text[len(text)-1] != '\n' {
			text = append(text, '\n')
		}
		text = fmt.Appendf(text, "[… %d bytes omitted …]\n", to-off)
	}
	for _, p := range ps {
		gap(p.off)
		valid = valid && utf8.Valid(p.b)
		text, raw = append(text, p.b...), append(raw, p.b...)
		off = p.end()
	}
	gap(v.To)
	if valid {
		v.Encoding, v.Text = "utf-8", string(text)
	} else {
		v.Encoding, v.Base64 = "base64", base64.StdEncoding.EncodeToString(raw)
	}
	return v
}

// A piece is bytes of a stream without a gap.
type piece struct {
	off int64
	b   []byte
}

func (p piece) end() int64 { return p.off + int64(len(p.b)) }

// pieces returns the bytes of r that are kept, and where r ends: earlier when
// there is nothing behind it yet.
func (s *Stream) pieces(r Range) (ps []piece, end int64, err error) {
	buf := make([]byte, min(r.Len(), scanChunk))
	off := r.From
	for off < r.To {
		n, err := s.ReadAt(buf[:min(int64(len(buf)), r.To-off)], off)
		if n > 0 {
			if k := len(ps) - 1; k >= 0 && ps[k].end() == off {
				ps[k].b = append(ps[k].b, buf[:n]...)
			} else {
				ps = append(ps, piece{off, append([]byte(nil), buf[:n]...)})
			}
			off += int64(n)
			continue
		}
		gap := (*Omitted)(nil)
		switch {
		case errors.As(err, &gap):
			off = min(gap.To, r.To)
		case err == nil || err == io.EOF:
			return ps, off, nil
		default:
			return nil, 0, err
		}
	}
	return ps, off, nil
}

// cutRune returns the length of b without a rune that is cut at its end.
func cutRune(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// continuation returns how many bytes at the start of b are the rest of a rune.
func continuation(b []byte) int {
	for i, c := range b[:min(len(b), utf8.UTFMax)] {
		if utf8.RuneStart(c) {
			return i
		}
	}
	if len(b) < utf8.UTFMax {
		return len(b)
	}
	return 0 // no rune is that long
}
