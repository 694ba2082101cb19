package capture

import (
	"bytes"
	"sort"
)

// A literal is the engine for plain text.
type literal struct{ pattern []byte }

func (l *literal) scan(text []byte, seen int, _ bool) (i, j, keep int, ok bool) {
	overlap := len(l.pattern) - 1
	from := max(seen-overlap, 0)
	if i := bytes.Index(text[from:], l.pattern); i >= 0 {
		return from + i, from + i + len(l.pattern), 0, true
	}
	return 0, 0, max(len(text)-overlap, 0), false
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
