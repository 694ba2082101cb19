package lint

import (
	_ "embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"path"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// declared is what one file alone must know of our packages to be checked
// without them: a test compares it with what they are.
//
//go:embed declared.txt
var declared string

// checkGo lints one Go file by itself. Types of other files and packages are
// not known: what cannot be told from this file is not reported.
func checkGo(name string, src []byte) (found []Finding, comments []comment) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		at := Finding{File: name, Line: 1, Column: 1, Level: Warning, Rule: RuleSyntax, Why: err.Error() + ": nothing in it was looked at"}
		var list scanner.ErrorList
		if errors.As(err, &list) && len(list) > 0 {
			at.Line, at.Column, at.Why = list[0].Pos.Line, list[0].Pos.Column, list[0].Msg+": nothing in it was looked at"
		}
		at.EndLine = at.Line
		return []Finding{at}, nil
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Implicits: map[ast.Node]types.Object{}}
	conf := types.Config{Importer: outline{}, Error: func(error) {}, FakeImportC: true, DisableUnusedImportCheck: true}
	_, _ = conf.Check(f.Name.Name, fset, []*ast.File{f}, info) // what it does not find is left unknown
	g := &goFile{fset, f, info, parentsOf(f)}
	analyze(g, func(d analysis.Diagnostic) {
		at, end := fset.Position(d.Pos), fset.Position(d.End)
		found = append(found, GoFinding(name, at.Line, at.Column, end.Line, d.Category, d.Message, d.SuggestedFixes[0].Message))
	})
	return found, g.comments()
}

// GoFinding is a diagnostic of Analyzer as a finding.
func GoFinding(file string, line, column, end int, category, why, fix string) Finding {
	return Finding{File: file, Line: line, Column: column, EndLine: end, Level: Warning, Rule: RuleCleanup, Verdict: Verdict(category),
		Name: handleName(why), Why: why, Fix: fix}
}

// handleName is the variable in front of a message, if there is one.
func handleName(why string) string {
	name, _, ok := strings.Cut(why, ", what ")
	if !ok {
		return ""
	}
	return name
}

// An outline imports the part of our packages that the rule is about, and
// nothing of all others.
type outline map[string]*types.Package

func (o outline) Import(name string) (*types.Package, error) {
	for _, part := range strings.Split(declared, "-- ")[1:] {
		file, src, _ := strings.Cut(part, " --\n")
		if file != name {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, src, 0)
		if err != nil {
			return nil, fmt.Errorf("outline of %s: %w", name, err)
		}
		conf := types.Config{Importer: outline{}, Error: func(error) {}}
		pkg, _ := conf.Check(name, fset, []*ast.File{f}, nil)
		return pkg, nil
	}
	last := path.Base(name)
	if len(last) > 1 && last[0] == 'v' && strings.Trim(last[1:], "0123456789") == "" {
		last = path.Base(path.Dir(name))
	}
	pkg := types.NewPackage(name, last)
	pkg.MarkComplete()
	return pkg, nil
}
