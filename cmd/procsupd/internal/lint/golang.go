package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Analyzer is the rule long-running-without-cleanup for Go, for go vet
// -vettool and other drivers of go/analysis. The ignore comments are honoured.
var Analyzer = &analysis.Analyzer{
	Name: "procsup", // go vet wants an identifier
	Doc: "procsup: report commands that are started and not ended on every way out (" + RuleCleanup + `)

What procsup/pgroup.Start, (*supervisor.Supervisor).Start, supervisor.Open and
(*client.Client).Start give must be ended by a Cancel, Close, Stop or Wait that
is deferred, or that no condition and no return comes before. What is passed
on, stored or returned is someone else's to end.`,
	Run: func(pass *analysis.Pass) (any, error) {
		for _, f := range pass.Files {
			analyze(&goFile{pass.Fset, f, pass.TypesInfo, parentsOf(f)}, pass.Report)
		}
		return nil, nil
	},
}

// A starter is a function whose result has to be ended.
type starter struct {
	enders []string // methods of the result, or of the receiver of the start
	onRecv bool     // the enders are the receiver's, the result is an id
	fix    func(c *started) string
	edit   bool // the fix needs no import that may be missing
}

var sessionEnders = []string{"Cancel", "Wait", "WaitTake", "Shutdown", "CloseSession", "ShutdownSession", "DeleteSession", "ResetSession", "ClearSession", "CancelScope"}

var starters = map[string]starter{
	"procsup/pgroup.Start": {enders: []string{"Stop", "Finish", "Reap", "AwaitEnd", "Cancel", "Close", "Wait"}, edit: true,
		fix: func(c *started) string {
			return fmt.Sprintf("defer func() { %[1]s.Stop(pgroup.Ladder{}, nil); %[1]s.Reap() }()", c.name())
		}},
	"procsup/supervisor.Open": {enders: []string{"Close", "Shutdown"}, edit: true,
		fix: func(c *started) string { return fmt.Sprintf("defer %s.Close()", c.name()) }},
	"(*procsup/supervisor.Supervisor).Start": {enders: append([]string{"Close"}, sessionEnders...), onRecv: true,
		fix: func(c *started) string {
			return fmt.Sprintf("defer %s.Cancel(context.Background(), string(%s.HandleID), %q, wire.Cancel{})", c.recv, c.name(), "")
		}},
	"(*procsup/supervisor/client.Client).Start": {enders: sessionEnders, onRecv: true,
		fix: func(c *started) string {
			return fmt.Sprintf("defer %s.Cancel(context.Background(), string(%s.HandleID), wire.Cancel{})", c.recv, c.name())
		}},
}

// A goFile is one file with what is known of its types.
type goFile struct {
	fset    *token.FileSet
	file    *ast.File
	info    *types.Info
	parents map[ast.Node]ast.Node
}

func parentsOf(f *ast.File) map[ast.Node]ast.Node {
	parents := map[ast.Node]ast.Node{}
	var stack []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		if len(stack) > 0 {
			parents[n] = stack[len(stack)-1]
		}
		stack = append(stack, n)
		return true
	})
	return parents
}

// callee is the full name of what a call calls; "" if it is not known.
func (g *goFile) callee(call *ast.CallExpr) string {
	var id *ast.Ident
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	default:
		return ""
	}
	if fn, ok := g.info.Uses[id].(*types.Func); ok {
		return fn.FullName()
	}
	return ""
}

func (g *goFile) line(n ast.Node) int { return g.fset.Position(n.Pos()).Line }

// A started is one start and what is known of its result.
type started struct {
	*goFile
	starter
	call  *ast.CallExpr
	stmt  ast.Stmt       // the statement it is in
	body  *ast.BlockStmt // of the function it is in
	v, e  types.Object   // what holds the result and the error; nil: nothing
	recv  string         // what it was called on
	holds []types.Object // all variables that lead to the result
	check ast.Node       // the if that asks whether the start failed
	ends  []goEnd        // what ends it
}

func (c *started) name() string {
	if c.v == nil {
		return "it"
	}
	return c.v.Name()
}

// An goEnd is a call that ends what was started.
type goEnd struct {
	node     ast.Node
	deferred bool
}

func analyze(g *goFile, report func(analysis.Diagnostic)) {
	var ignores []ignore
	for _, c := range g.comments() {
		if i, mine, why := parseIgnore(c); mine && why == "" {
			ignores = append(ignores, i)
		}
	}
	ast.Inspect(g.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		st, ok := starters[g.callee(call)]
		if !ok {
			return true
		}
		c := &started{goFile: g, starter: st, call: call}
		verdict, why := c.judge()
		at, end := g.line(call), g.fset.Position(call.End()).Line
		if verdict == "" || slices.ContainsFunc(ignores, func(i ignore) bool { return i.silences(RuleCleanup, at, end) }) {
			return true
		}
		report(c.diagnostic(verdict, why))
		return true
	})
}

func (g *goFile) comments() (list []comment) {
	for _, group := range g.file.Comments {
		for _, c := range group.List {
			p := g.fset.Position(c.Pos())
			list = append(list, comment{p.Line, p.Column, strings.TrimPrefix(c.Text, "//")})
		}
	}
	return list
}

func (c *started) diagnostic(v Verdict, why string) analysis.Diagnostic {
	d := analysis.Diagnostic{Pos: c.call.Pos(), End: c.call.End(), Category: string(v), Message: why}
	fix := analysis.SuggestedFix{Message: c.fix(c)}
	if c.edit && c.v != nil && c.v.Name() != "_" {
		after := c.stmt.End()
		if c.check != nil && c.check.Pos() > after {
			after = c.check.End()
		}
		if _, inInit := c.parents[c.stmt].(*ast.BlockStmt); inInit {
			fix.TextEdits = []analysis.TextEdit{{Pos: after, End: after, NewText: []byte("\n" + fix.Message)}}
		}
	}
	d.SuggestedFixes = []analysis.SuggestedFix{fix}
	return d
}

// judge says what is wrong with a start; "" if nothing is, or if it is handed
// on and someone else's to end.
func (c *started) judge() (Verdict, string) {
	if !c.place() || c.escapes() {
		return "", ""
	}
	c.findEnds()
	short := c.callee(c.call)
	short = short[strings.LastIndex(short, "/")+1:]
	what := "what " + strings.NewReplacer("(*", "", ")", "").Replace(short) + " started"
	if c.v != nil && c.v.Name() != "_" {
		what = c.v.Name() + ", " + what + ","
	}
	if len(c.ends) == 0 {
		return NoClean, what + " is never ended: no " + strings.Join(c.enders[:2], ", no ") + ", deferred or not"
	}
	worst := ""
	for _, e := range c.ends {
		why := c.misses(e)
		if why == "" {
			return "", ""
		}
		worst = why
	}
	return NoTrap, what + " is not ended on every way out: " + worst
}
