package lint

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A trap is one action for signals.
type trap struct {
	node    syntax.Node
	signals []string // EXIT, INT, TERM, …
	events  []*event // what its action does
	within  *job
	seq     int
	unseen  bool     // what it does is not in this file
	early   []string // variables in double quotes: they get their value when the trap is set
}

func (s *script) trap(st *syntax.Stmt, c *command, p place) {
	words := c.word[1:]
	for len(words) > 0 && (text(words[0]) == "--" || text(words[0]) == "-p" || text(words[0]) == "-l") {
		words = words[1:]
	}
	if len(words) < 2 {
		return
	}
	action := text(words[0])
	if action == "-" || action == "" {
		return
	}
	t := &trap{node: st, within: p.job, seq: len(s.events)}
	for _, w := range words[1:] {
		name := strings.TrimPrefix(strings.ToUpper(text(w)), "SIG")
		switch name {
		case "0":
			name = "EXIT"
		case "1":
			name = "HUP"
		case "2":
			name = "INT"
		case "15":
			name = "TERM"
		}
		if strings.ContainsAny(name, "$…") { // for sig in INT TERM; do trap … $sig
			t.signals = append(t.signals, "EXIT", "INT", "TERM")
		}
		t.signals = append(t.signals, name)
	}
	s.action(t, words[0])
	s.traps = append(s.traps, t)
}

// action walks what a trap does.
func (s *script) action(t *trap, w *syntax.Word) {
	code, ok := s.code(w)
	if !ok {
		t.unseen = true
		return
	}
	file, err := syntax.NewParser().Parse(strings.NewReader(code), s.name)
	if err != nil {
		t.unseen = true
		return
	}
	for _, part := range w.Parts {
		if q, ok := part.(*syntax.DblQuoted); ok {
			t.early = append(t.early, variables(q)...)
		}
	}
	kept, jobs := s.events, len(s.jobs)
	s.events = nil
	s.stmts(file.Stmts, place{root: "trap"})
	t.events, s.events = s.events, kept
	s.jobs = s.jobs[:jobs] // a job that a trap starts is over with the script
	walk(file, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			c := commandOf(call)
			_, known := s.funcs[c.name]
			t.unseen = t.unseen || !known && s.foreign(c)
		}
		return true
	})
}

// foreign reports whether a command may be a function of a script that this
// one reads, or something only known when it runs.
func (s *script) foreign(c *command) bool {
	if strings.ContainsAny(c.name, "$…") || c.name == "eval" {
		return true
	}
	if c.name == "" || slices.Contains(brief, c.name) || killOf(c) != nil || c.name == "procsup" {
		return false
	}
	return s.sources
}

// code is the shell text of a trap's action as it is run later.
func (s *script) code(w *syntax.Word) (string, bool) {
	if len(w.Parts) == 1 {
		switch part := w.Parts[0].(type) {
		case *syntax.SglQuoted:
			return part.Value, true
		case *syntax.DblQuoted:
			from, to := part.Pos().Offset()+1, part.End().Offset()-1
			if part.Dollar || from > to || int(to) > len(s.src) {
				return "", false
			}
			r := strings.NewReplacer(`\"`, `"`, `\$`, `$`, "\\`", "`", `\\`, `\`)
			return r.Replace(string(s.src[from:to])), true
		case *syntax.Lit:
			return unescape(part.Value), true
		case *syntax.ParamExp:
			return "", false
		}
	}
	return text(w), !strings.ContainsAny(text(w), "…")
}

// covers reports whether a trap runs for one of the signals.
func (t *trap) covers(signals ...string) bool {
	return slices.ContainsFunc(signals, func(sig string) bool { return slices.Contains(t.signals, sig) })
}

// startsAndStops reports whether a case has both a branch start and one stop:
// the script is a service's, called once for each.
func startsAndStops(c *syntax.CaseClause) bool {
	var start, stop bool
	for _, item := range c.Items {
		for _, p := range item.Patterns {
			switch t := strings.TrimLeft(text(p), "-"); {
			case t == "start" || t == "up":
				start = true
			case t == "stop" || t == "down":
				stop = true
			}
		}
	}
	return start && stop
}
