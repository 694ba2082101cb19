package capture

import "bytes"

// A stripper takes terminal escapes (ECMA-48: CSI, OSC, DCS, SOS, PM, APC and
// two-byte ones) and carriage returns out of bytes that come in pieces. A
// string that is not ended ends at a newline, so that a stray ESC hides at most
// a line; so does any other byte that does not belong in an escape. Bytes above
// 0x7f are text: 8-bit controls cannot be told from UTF-8.
type stripper struct{ state stripState }

type stripState uint8

const (
	stripText   stripState = iota
	stripEsc               // behind ESC
	stripInter             // behind ESC and 0x20-0x2f
	stripCSI               // behind ESC [
	stripString            // within OSC and the like
	stripST                // behind an ESC within a string
)

const esc = 0x1b

func (s *stripper) reset() { s.state = stripText }

// plain reports whether b is all text.
func (s *stripper) plain(b []byte) bool {
	return s.state == stripText && bytes.IndexByte(b, esc) < 0 && bytes.IndexByte(b, '\r') < 0
}

// runs calls text for each piece b[i:j] that stays, in order.
func (s *stripper) runs(b []byte, text func(i, j int)) {
	nextEsc, nextCR := -1, -1 // the first of each at or behind i, once looked for
	for i := 0; i < len(b); {
		if s.state != stripText {
			if !s.next(b[i]) || b[i] == '\r' {
				i++
				continue
			}
		}
		// b[i] is text, or begins an escape, or is a CR
		nextEsc, nextCR = indexFrom(b, esc, i, nextEsc), indexFrom(b, '\r', i, nextCR)
		end := min(nextEsc, nextCR)
		if i < end {
			text(i, end)
		}
		if end == nextEsc && end < len(b) {
			s.state = stripEsc
		}
		i = end + 1
	}
}

// indexFrom returns the first c in b at or behind i, len(b) for none; known is
// the answer for a smaller i, or -1.
func indexFrom(b []byte, c byte, i, known int) int {
	if known >= i {
		return known
	}
	if k := bytes.IndexByte(b[i:], c); k >= 0 {
		return i + k
	}
	return len(b)
}

// next takes a byte behind an ESC and reports whether it is text.
func (s *stripper) next(c byte) (text bool) {
	switch s.state {
	case stripST:
		s.state = stripString
		if c == '\\' {
			s.state = stripText
			return false
		}
		if c != '\n' && c != esc {
			s.state = stripEsc // the string was cut short by another escape
			return s.next(c)
		}
		return s.next(c)
	case stripString:
		switch c {
		case esc:
			s.state = stripST
		case 0x07, 0x18, 0x1a: // BEL ends it, CAN and SUB break it off
			s.state = stripText
		case '\n':
			s.state = stripText
			return true
		}
		return false
	}
	switch {
	case c == esc:
		s.state = stripEsc
		return false
	case c < 0x20 || c >= 0x7f: // no part of an escape
		s.state = stripText
		return c != 0x18 && c != 0x1a
	}
	switch s.state {
	case stripEsc:
		s.state = afterEsc(c)
	case stripInter:
		if c >= 0x30 {
			s.state = stripText
		}
	case stripCSI:
		if c >= 0x40 {
			s.state = stripText
		}
	}
	return false
}

// afterEsc returns what a byte 0x20-0x7e behind ESC begins.
func afterEsc(c byte) stripState {
	switch c {
	case '[':
		return stripCSI
	case ']', 'P', 'X', '^', '_':
		return stripString
	}
	if c < 0x30 {
		return stripInter
	}
	return stripText
}
