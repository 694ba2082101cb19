package lint

import (
	"errors"
	"fmt"

	"mvdan.cc/sh/v3/syntax"
)

// checkShell lints a shell script.
func checkShell(name string, src []byte, lang string) (found []Finding, comments []comment) {
	bad := func(line, column int, why string) []Finding {
		return []Finding{{File: name, Line: max(line, 1), Column: max(column, 1), EndLine: max(line, 1), Level: Warning, Rule: RuleSyntax, Why: why + ": nothing in it was looked at"}}
	}
	d, err := dialectOf(name, src, lang)
	if err != nil {
		return bad(1, 1, err.Error()), nil
	}
	file, err := parse(name, src, d.variant)
	if err != nil {
		line, column := 1, 1
		why := err.Error()
		var pe syntax.ParseError
		var le syntax.LangError
		switch {
		case errors.As(err, &pe):
			line, column, why = int(pe.Pos.Line()), int(pe.Pos.Col()), pe.Text
		case errors.As(err, &le):
			line, column, why = int(le.Pos.Line()), int(le.Pos.Col()), fmt.Sprintf("%s is no part of this shell's language", le.Feature)
		}
		return bad(line, column, why), nil
	}
	s := newScript(name, src, file, d)
	for _, rule := range []func() []Finding{s.cleanup, s.sleeping, s.unawaited, s.polling, s.named} {
		found = append(found, rule()...)
	}
	if s.cut != nil {
		found = append(found, s.finding(s.cut, RuleSyntax, &outcome{"", Note, "the script does more than lint follows: from here on it was not looked at"}, "", ""))
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.Comment); ok {
			comments = append(comments, comment{int(c.Hash.Line()), int(c.Hash.Col()), c.Text})
		}
		return true
	})
	return found, comments
}
