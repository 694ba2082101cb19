package capture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp/syntax"
	"unicode/utf8"
)

// A regex is the engine for expressions. The regexp package cannot be fed in
// pieces, nor tell that text matches before it has seen what comes next, so the
// compiled program is run here: a lazily built DFA finds where the first match
// ends, at once and in time linear in the text, and the NFA (pike.go) then
// finds where it begins.
type regex struct {
	prog   *syntax.Prog
	prefix []byte // every match begins with it

	states map[string]*dstate
	runes  int // transitions in maps, bounded together with states
	cur    *dstate
	at     int    // the next byte of text to look at
	since  int    // no match under way began before text[since]
	before rune   // what came before text[since], of its kind
	cut    bool   // text[since] was dropped: the beginning is not known
	key    []byte // scratch
	set    closure
}

// A dstate is a set of threads and what the last rune was.
type dstate struct {
	pcs    []uint32 // where threads go on; the start of the program is always added
	prev   rune     // begin, newline, word or other: a rune of that kind
	accept bool     // a match ends here whatever comes next
	next   [utf8.RuneSelf]*dstate
	other  map[rune]*dstate
}

const (
	maxStates = 512
	textBegin = rune(-1)
	lookAhead = syntax.EmptyEndLine | syntax.EmptyEndText | syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary
)

// matched is the transition that says that a match ended before the rune.
var matched = &dstate{}

// newRegex compiles an RE2 expression in which ^ and $ match at lines.
func newRegex(pattern string) (engine, error) {
	re, err := syntax.Parse(pattern, syntax.Perl&^syntax.OneLine)
	if err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	e := &regex{prog: prog, states: make(map[string]*dstate), before: textBegin}
	e.set.seen = make([]uint32, len(prog.Inst))
	prefix, _ := prog.Prefix()
	e.prefix = []byte(prefix)
	e.cur = e.state(nil, textBegin)
	return e, nil
}

// reset begins anew behind missing bytes, of which nothing is known.
func (e *regex) reset() {
	e.cur, e.at, e.since, e.before, e.cut = e.state(nil, ' '), 0, 0, ' ', false
}

func (e *regex) scan(text []byte, _ int, end bool) (i, j, keep int, ok bool) {
	if to, hit := e.search(text, end); hit {
		if e.cut {
			return 0, to, 0, true
		}
		i, j := e.locate(text, end)
		return i, j, 0, true
	}
	keep = e.since
	if low := len(text) - MatchSpan; keep < low {
		keep, e.cut = low, true
	}
	e.at -= keep
	e.since = max(e.since-keep, 0)
	return 0, 0, keep, false
}

// search runs the DFA over the text and returns where the first match ends.
func (e *regex) search(text []byte, end bool) (to int, hit bool) {
	st, i := e.cur, e.at
	defer func() { e.cur, e.at = st, i }()
	for !st.accept {
		if len(st.pcs) == 0 {
			if k := e.skip(text, i); k > i {
				r, _ := utf8.DecodeLastRune(text[:k])
				st, i = e.state(nil, kind(r)), k
			}
			e.since, e.before, e.cut = i, st.prev, false
		}
		if i == len(text) {
			return i, end && e.matches(st, -1)
		}
		var next *dstate
		width := 1
		if c := text[i]; c < utf8.RuneSelf {
			if next = st.next[c]; next == nil {
				next = e.step(st, rune(c))
				st.next[c] = next
			}
		} else {
			if !end && !utf8.FullRune(text[i:]) {
				return i, false
			}
			var r rune
			r, width = utf8.DecodeRune(text[i:])
			next = e.other(st, r)
		}
		if next == matched {
			return i, true
		}
		st = next
		i += width
	}
	return i, true
}

// skip returns where the next match can begin at the earliest.
func (e *regex) skip(text []byte, i int) int {
	if len(e.prefix) == 0 {
		return i
	}
	if k := bytes.Index(text[i:], e.prefix); k >= 0 {
		return i + k
	}
	k := max(i, len(text)-len(e.prefix)+1)
	for k > i && k < len(text) && !utf8.RuneStart(text[k]) {
		k-- // a rune is looked at whole
	}
	return k
}

// other is the transition for a rune that is not ASCII.
func (e *regex) other(st *dstate, r rune) *dstate {
	if next, ok := st.other[r]; ok {
		return next
	}
	next := e.step(st, r)
	if e.runes++; e.runes > 32*maxStates {
		e.forget()
	}
	if st.other == nil {
		st.other = make(map[rune]*dstate)
	}
	st.other[r] = next
	return next
}

// step computes a transition.
func (e *regex) step(st *dstate, r rune) *dstate {
	if e.matches(st, r) { // leaves the closure in e.set
		return matched
	}
	var pcs []uint32
	for _, pc := range e.set.runes {
		if inst := &e.prog.Inst[pc]; inst.MatchRune(r) {
			pcs = append(pcs, inst.Out)
		}
	}
	return e.state(pcs, kind(r))
}

// matches reports whether a match ends in st when next comes behind it, -1 for
// the end of the text.
func (e *regex) matches(st *dstate, next rune) bool {
	return e.close(st, syntax.EmptyOpContext(st.prev, next))
}

func (e *regex) close(st *dstate, flags syntax.EmptyOp) bool {
	e.set.clear()
	hit := false
	for _, pc := range st.pcs {
		hit = e.set.add(e.prog, pc, flags) || hit
	}
	return e.set.add(e.prog, uint32(e.prog.Start), flags) || hit
}

// state returns the one state of these threads.
func (e *regex) state(pcs []uint32, prev rune) *dstate {
	pcs = unique(pcs)
	e.key = binary.AppendVarint(e.key[:0], int64(prev))
	for _, pc := range pcs {
		e.key = binary.AppendUvarint(e.key, uint64(pc))
	}
	if st, ok := e.states[string(e.key)]; ok {
		return st
	}
	if len(e.states) >= maxStates {
		e.forget()
	}
	st := &dstate{pcs: pcs, prev: prev}
	st.accept = e.close(st, syntax.EmptyOpContext(prev, ' ')&^lookAhead)
	e.states[string(e.key)] = st
	return st
}

// forget drops all states, so that a pattern that makes many stays small. The
// ones in use go on without their transitions.
func (e *regex) forget() {
	for _, st := range e.states {
		st.next, st.other = [utf8.RuneSelf]*dstate{}, nil
	}
	clear(e.states)
	e.runes = 0
}

// unique removes doubles and keeps the order.
func unique(pcs []uint32) []uint32 {
	out := pcs[:0]
next:
	for _, pc := range pcs {
		for _, q := range out {
			if q == pc {
				continue next
			}
		}
		out = append(out, pc)
	}
	return out
}

// kind returns a rune that stands for all that are like r to an empty-width test.
func kind(r rune) rune {
	switch {
	case r == '\n':
		return r
	case syntax.IsWordChar(r):
		return 'a'
	}
	return ' '
}
