package capture

import (
	"regexp/syntax"
	"unicode/utf8"
)

// A closure collects the instructions that can be reached without a rune.
type closure struct {
	seen  []uint32 // seen[pc] == round: has been added
	round uint32
	runes []uint32 // those that take a rune, in order of preference
}

func (c *closure) clear() {
	c.round++
	c.runes = c.runes[:0]
}

// add adds what can be reached from pc and reports whether that is a match.
func (c *closure) add(p *syntax.Prog, pc uint32, flags syntax.EmptyOp) (match bool) {
	if c.seen[pc] == c.round {
		return false
	}
	c.seen[pc] = c.round
	switch inst := &p.Inst[pc]; inst.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		a := c.add(p, inst.Out, flags)
		return c.add(p, inst.Arg, flags) || a
	case syntax.InstCapture, syntax.InstNop:
		return c.add(p, inst.Out, flags)
	case syntax.InstEmptyWidth:
		return syntax.EmptyOp(inst.Arg)&^flags == 0 && c.add(p, inst.Out, flags)
	case syntax.InstMatch:
		return true
	case syntax.InstFail:
		return false
	default:
		c.runes = append(c.runes, pc)
		return false
	}
}

// A thread is a place in the program and where its match began.
type thread struct {
	pc    uint32
	begin int
}

// A pike runs the program over text with the preferences of RE2: the leftmost
// match, and of those the first by the order of alternatives.
type pike struct {
	prog *syntax.Prog
	seen []uint32
	pos  uint32 // changes with each position; seen[pc] == pos: was added

	now, next []thread
	i, j      int
	hit       bool
}

// locate finds the match that search has found the end of: it may begin at
// text[since] or later, and takes in what is there of a longer one.
func (e *regex) locate(text []byte, end bool) (i, j int) {
	p := &pike{prog: e.prog, seen: make([]uint32, len(e.prog.Inst))}
	prev := e.before
	for at := e.since; ; {
		flags := syntax.EmptyOpContext(prev, -1)
		r, width := rune(-1), 0
		if at < len(text) && (end || utf8.FullRune(text[at:])) {
			r, width = utf8.DecodeRune(text[at:])
			flags = syntax.EmptyOpContext(prev, r)
		} else if !end {
			flags &^= lookAhead // not known yet
		}
		p.advance(at, r, width > 0, flags)
		if width == 0 || p.hit && len(p.now) == 0 {
			return p.i, p.j
		}
		prev = r
		at += width
	}
}

// advance lets the threads see the rune at position at.
func (p *pike) advance(at int, r rune, any bool, flags syntax.EmptyOp) {
	p.pos++
	p.next = p.next[:0]
	cut := false
	for _, t := range p.now {
		if cut = p.follow(t.pc, t.begin, at, r, any, flags); cut {
			break
		}
	}
	if !cut && !p.hit {
		p.follow(uint32(p.prog.Start), at, at, r, any, flags)
	}
	p.now, p.next = p.next, p.now
}

// follow runs one thread up to its next rune. It reports true when it matched:
// threads behind it matter no more.
func (p *pike) follow(pc uint32, begin, at int, r rune, any bool, flags syntax.EmptyOp) bool {
	if p.seen[pc] == p.pos {
		return false
	}
	p.seen[pc] = p.pos
	switch inst := &p.prog.Inst[pc]; inst.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		return p.follow(inst.Out, begin, at, r, any, flags) || p.follow(inst.Arg, begin, at, r, any, flags)
	case syntax.InstCapture, syntax.InstNop:
		return p.follow(inst.Out, begin, at, r, any, flags)
	case syntax.InstEmptyWidth:
		return syntax.EmptyOp(inst.Arg)&^flags == 0 && p.follow(inst.Out, begin, at, r, any, flags)
	case syntax.InstMatch:
		p.i, p.j, p.hit = begin, at, true
		return true
	case syntax.InstFail:
		return false
	default:
		if any && inst.MatchRune(r) {
			p.next = append(p.next, thread{inst.Out, begin})
		}
		return false
	}
}
