// Package lint finds what scripts and Go programs start and do not end: the
// bytes of a file go in, findings come out. It reads no file and runs nothing.
package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Level says how much a finding matters. Only warnings fail a build, and
// only when asked to.
type Level string

const (
	Warning Level = "warning" // something is left behind, or a stranger is hit
	Note    Level = "note"    // works, but by luck or by polling
)

// The rules.
const (
	RuleCleanup = "long-running-without-cleanup"
	RuleSleep   = "sleep-for-readiness"
	RulePoll    = "poll-for-readiness"
	RuleName    = "kill-by-name"
	RuleSyntax  = "syntax" // the file cannot be read as what it is: nothing else is said of it
	RuleIgnore  = "ignore" // an ignore that ignores nothing
)

// A Rule is what SARIF and the help tell of a rule.
type Rule struct {
	ID, Short, Help string
	Level           Level
}

// Rules are all rules, in the order of the help.
var Rules = []Rule{
	{RuleCleanup, "A command goes on in the background and may outlive the script or program.",
		"Start it with procsup start and cancel it in an EXIT trap, or in Go in a defer; or wait for it.", Warning},
	{RuleSleep, "A fixed sleep, or nothing, stands where a server should be waited for.",
		"Wait for the line that the server says when it is ready: procsup wait-output.", Note},
	{RulePoll, "A loop asks again and again, for ever, whether something is ready.",
		"Wait for the event, or bound the loop by a deadline.", Note},
	{RuleName, "Processes are ended by name or port, which also hits those of others.",
		"Keep the handle of what was started and cancel that.", Warning},
	{RuleSyntax, "The file cannot be parsed.", "Nothing in it was looked at.", Warning},
	{RuleIgnore, "A procsup-lint comment does not name a rule and a reason.",
		"Write: procsup-lint: ignore RULE REASON.", Note},
}

// A Verdict is the finer word for a finding.
type Verdict string

const (
	NoClean   Verdict = "NOCLEAN"   // nothing ends it
	NoTrap    Verdict = "NOTRAP"    // ended only when all goes well
	WeakTrap  Verdict = "WEAKTRAP"  // a trap is there and cannot do it
	Daemon    Verdict = "DAEMON"    // detaches itself
	Sleep     Verdict = "SLEEP"     // a fixed time as readiness
	NoWait    Verdict = "NOWAIT"    // used at once
	Unbounded Verdict = "UNBOUNDED" // polls for ever
	Broad     Verdict = "BROAD"     // hits strangers
)

// A Finding is one place and what is wrong there. Line and Column count from
// 1; columns are bytes.
type Finding struct {
	File    string  `json:"file"`
	Line    int     `json:"line"`
	Column  int     `json:"column"`
	EndLine int     `json:"end_line"`
	Level   Level   `json:"level"`
	Rule    string  `json:"rule"`
	Verdict Verdict `json:"verdict,omitempty"`
	Name    string  `json:"name,omitempty"` // the command, or in Go the handle
	Why     string  `json:"why"`
	Fix     string  `json:"fix,omitempty"` // what to write in its place

	runes int // Column in characters; 0: not known
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d:%d: %s: %s: %s", f.File, f.Line, f.Column, f.Level, f.Rule, f.Why)
}

// What bounds the time that one file may take, and the patience of its reader.
const (
	maxFile     = 512 << 10
	maxFindings = 500
)

// Check lints one file. The name decides, with the first line, what it is;
// lang overrides that: sh, bash, mksh, bats, go, or "" for auto.
func Check(name string, src []byte, lang string) []Finding {
	if len(src) > maxFile {
		return []Finding{{File: name, Line: 1, Column: 1, EndLine: 1, Level: Warning, Rule: RuleSyntax,
			Why: fmt.Sprintf("%d bytes are more than lint reads (%d): nothing in it was looked at", len(src), maxFile)}}
	}
	found := []Finding{}
	var comments []comment
	if lang == "go" || lang == "" && strings.HasSuffix(name, ".go") {
		found, comments = checkGo(name, src)
	} else {
		found, comments = checkShell(name, src, lang)
	}
	found = honour(name, found, comments)
	if more := len(found) - maxFindings; more > 0 {
		found = Sorted(found)[:maxFindings]
		found[maxFindings-1] = Finding{File: name, Line: found[maxFindings-1].Line, Column: 1, EndLine: found[maxFindings-1].Line, Level: Warning,
			Rule: RuleSyntax, Why: fmt.Sprintf("%d more findings, from here on, are not shown", more+1)}
	}
	lines := bytes.Split(src, []byte("\n"))
	for i, f := range found {
		if f.Line <= len(lines) && f.Column <= len(lines[f.Line-1])+1 {
			found[i].runes = 1 + utf8.RuneCount(lines[f.Line-1][:f.Column-1])
		}
	}
	return Sorted(found)
}

// Sorted puts findings into the order of their places, each once.
func Sorted(found []Finding) []Finding {
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Rule, b.Rule))
	})
	return slices.Compact(found)
}
