package capture

import (
	"bytes"
	"sort"
	"strings"
)

// A literal is the engine for plain text. It looks for the byte of the pattern
// that is rarest in common output, which skips text at the speed of IndexByte,
// and falls back to bytes.Index in text where that byte is not rare.
type literal struct {
	pattern []byte
	rare    int // index in pattern
}

func newLiteral(pattern string) *literal {
	l := &literal{pattern: []byte(pattern)}
	for i := range l.pattern {
		if rank(l.pattern[i]) > rank(l.pattern[l.rare]) {
			l.rare = i
		}
	}
	return l
}

// common is what output is made of, the most frequent first.
const common = " etaoinsrhldcumfpgwybvk\n0123456789-./:_ETAOINSRHLDCUMFPGWYBVK,()=[]'\"*x"

// rank is high for a rare byte.
func rank(c byte) int {
	if k := strings.IndexByte(common, c); k >= 0 {
		return k
	}
	return len(common)
}

func (l *literal) scan(text []byte, seen int, _ bool) (i, j, keep int, ok bool) {
	overlap := len(l.pattern) - 1
	from := max(seen-overlap, 0)
	if i := l.index(text[from:]); i >= 0 {
		return from + i, from + i + len(l.pattern), 0, true
	}
	return 0, 0, max(len(text)-overlap, 0), false
}

// index is bytes.Index.
func (l *literal) index(text []byte) int {
	last := len(text) - len(l.pattern) // the last place it can begin
	c := l.pattern[l.rare]
	for i, misses := 0, 0; i <= last; {
		k := bytes.IndexByte(text[i+l.rare:last+l.rare+1], c)
		if k < 0 {
			return -1
		}
		i += k
		if bytes.HasPrefix(text[i:], l.pattern) {
			return i
		}
		i++
		if misses++; misses > 16+i/64 {
			if k = bytes.Index(text[i:], l.pattern); k >= 0 {
				k += i
			}
			return k
		}
	}
	return -1
}

func (l *literal) reset() {}

// A mark says that the text from index i on is the stream from offset raw on,
// up to the next mark.
type mark struct {
	i   int
	raw int64
}

// mark adds a mark, unless the last one says the same.
func (sc *scan) mark(i int, raw int64) {
	if k := len(sc.marks) - 1; k >= 0 {
		if m := sc.marks[k]; m.i == i {
			sc.marks[k].raw = raw
			return
		} else if m.raw+int64(i-m.i) == raw {
			return
		}
	}
	sc.marks = append(sc.marks, mark{i, raw})
}

// raw returns the offset of text[i]; behind the last mark it counts on.
func (sc *scan) raw(i int) int64 {
	k := sort.Search(len(sc.marks), func(k int) bool { return sc.marks[k].i > i }) - 1
	if k < 0 {
		return sc.pos
	}
	return sc.marks[k].raw + int64(i-sc.marks[k].i)
}

// dropMarks makes text[keep] the first.
func (sc *scan) dropMarks(keep int) {
	k := sort.Search(len(sc.marks), func(k int) bool { return sc.marks[k].i > keep }) - 1
	if k < 0 {
		return
	}
	first := mark{0, sc.marks[k].raw + int64(keep-sc.marks[k].i)}
	rest := append([]mark(nil), sc.marks[k+1:]...)
	sc.marks = append(sc.marks[:0], first)
	for _, m := range rest {
		sc.marks = append(sc.marks, mark{m.i - keep, m.raw})
	}
}
