package lint

import (
	"slices"
	"strings"
)

// A comment is a comment of the file, without its # or //.
type comment struct {
	line, column int
	text         string
}

const ignoreMark = "procsup-lint:"

// An ignore is one comment that silences a rule on its own line, on the line
// below, or on the last line of the finding's statement.
type ignore struct {
	line int
	rule string
}

// parseIgnore reads "procsup-lint: ignore RULE REASON". mine reports whether
// the comment speaks to us at all, why what is wrong with it.
func parseIgnore(c comment) (i ignore, mine bool, why string) {
	rest, mine := strings.CutPrefix(strings.TrimSpace(c.text), ignoreMark)
	if !mine {
		return i, false, ""
	}
	words := strings.Fields(rest)
	switch {
	case len(words) == 0 || words[0] != "ignore":
		return i, true, "only ignore is known behind procsup-lint:"
	case len(words) == 1:
		return i, true, "name the rule that is to be ignored, and why"
	case !slices.ContainsFunc(Rules, func(r Rule) bool { return r.ID == words[1] }):
		return i, true, "there is no rule " + words[1]
	case len(words) == 2:
		return i, true, "say why " + words[1] + " is ignored here; without a reason it is not"
	}
	return ignore{c.line, words[1]}, true, ""
}

// honour takes out what is ignored and adds what is wrong with ignores.
func honour(name string, found []Finding, comments []comment) []Finding {
	var ignores []ignore
	for _, c := range comments {
		i, mine, why := parseIgnore(c)
		switch {
		case why != "":
			found = append(found, Finding{File: name, Line: c.line, Column: c.column, EndLine: c.line, Level: Note, Rule: RuleIgnore, Why: why})
		case mine:
			ignores = append(ignores, i)
		}
	}
	return slices.DeleteFunc(found, func(f Finding) bool {
		return slices.ContainsFunc(ignores, func(i ignore) bool { return i.silences(f.Rule, f.Line, f.EndLine) })
	})
}

func (i ignore) silences(rule string, line, endLine int) bool {
	return i.rule == rule && (i.line == line || i.line == line-1 || i.line == endLine)
}
