package supervisor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"procsup/supervisor/wire"
)

// Rules of S4 that say how the code must be, not only what it does: they are
// read from the source, so that a second path cannot come in unseen.

// A source is the package without its tests.
type source struct {
	files map[string]*ast.File
	funcs map[string][]*ast.FuncDecl // by name; methods of several types may share one
}

func readSource(t *testing.T, dir string) source {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	src := source{files: map[string]*ast.File{}, funcs: map[string][]*ast.FuncDecl{}}
	fset := token.NewFileSet()
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), ".go") || strings.HasSuffix(n.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, dir+"/"+n.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		src.files[n.Name()] = f
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				src.funcs[fn.Name.Name] = append(src.funcs[fn.Name.Name], fn)
			}
		}
	}
	return src
}

// callee is the name of what a call calls, and what stands before its dot.
func callee(c *ast.CallExpr) (on, name string) {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return "", f.Name
	case *ast.SelectorExpr:
		return text(f.X), f.Sel.Name
	}
	return "", ""
}

// text is a chain of selectors as it is written.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	}
	return "?"
}

// callers are the functions that call one of that name.
func (src source) callers(name string) []string {
	found := map[string]bool{}
	for caller, fns := range src.funcs {
		for _, fn := range fns {
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					if _, called := callee(c); called == name {
						found[caller] = true
					}
				}
				return true
			})
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// reach are the functions of the package that a function may call, itself
// included.
func (src source) reach(from string) map[string]bool {
	seen := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		if seen[name] || src.funcs[name] == nil {
			return
		}
		seen[name] = true
		for _, fn := range src.funcs[name] {
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					if on, called := callee(c); !strings.HasPrefix(on, "s.journal") && !isPackage(on) {
						visit(called)
					}
				}
				return true
			})
		}
	}
	visit(from)
	return seen
}

func isPackage(name string) bool {
	return slices.Contains([]string{"json", "time", "fmt", "errors", "handles", "journal", "hex", "sha256", "strconv", "platform", "pgroup", "strings"}, name)
}

// S4-05, S4-08, S4-09, S4-11, S4-22: nothing that a decision reaches waits, reads
// the journal, talks to the keeper or to a process, or takes a context: there is
// no path on which it could fall back to something stale, and no time that it
// could cost. All it does to the outside is to hand its row to the writer.
func TestS4_08_ADecisionReadsNothingAndWaitsForNothing(t *testing.T) {
	src := readSource(t, ".")
	reach := src.reach("decide")
	for _, must := range []string{"workInFlight", "holds", "write", "batch"} {
		if !reach[must] {
			t.Fatalf("the search is wrong: decide does not reach %s, only %v", must, slices.Sorted(maps.Keys(reach)))
		}
	}
	for name := range reach {
		for _, fn := range src.funcs[name] {
			for _, p := range fn.Type.Params.List {
				if text(p.Type) == "context.Context" {
					t.Errorf("%s takes a context", name)
				}
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if why := outside(name, n); why != "" {
					t.Errorf("%s: %s", name, why)
				}
				return true
			})
		}
	}
}

// outside says what a node does beyond the memory that the lock guards.
func outside(fn string, n ast.Node) string {
	switch n := n.(type) {
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "receives from a channel"
		}
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt:
		if fn != "wake" { // which never blocks
			return "selects"
		}
	case *ast.SendStmt:
		if fn != "wake" {
			return "sends on a channel"
		}
	case *ast.CallExpr:
		on, called := callee(n)
		switch {
		case on == "time" && called != "Now" && called != "Duration":
			return "calls time." + called
		case strings.HasSuffix(on, "journal") && called != "Submit":
			return "calls " + on + "." + called
		case called == "Wait", strings.HasPrefix(on, "os"), strings.Contains(on, "Keeper"), strings.HasSuffix(on, "group"):
			return "calls " + on + "." + called
		}
	}
	return ""
}

// S4-11, S4-21, S4-42, S2-23: one function decides, and these alone ask it: a
// request, the deadlines of the run's owner and of its readiness (abort: the time
// to become ready; bite: the watchdog), a shutdown, and what a crash cut short of
// an end (finishEnding). Only the owner of a run
// ends its processes.
func TestS4_21_WhoDecides(t *testing.T) {
	src := readSource(t, ".")
	for name, want := range map[string][]string{
		"workInFlight": {"decide"},
		"decide":       {"CancelScope", "ShutdownAll", "abort", "attend", "bite", "cut", "endSession", "finishEnding", "ownerGone", "stopAll"},
		"stopAll":      {"Close", "Shutdown"},
		"cut":          {"Cancel"},
	} {
		if got := src.callers(name); !slices.Equal(got, want) {
			t.Errorf("%s is called by %v, want %v", name, got, want)
		}
	}
	for caller, fns := range src.funcs {
		for _, fn := range fns {
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					on, called := callee(c)
					if strings.HasSuffix(on, "group") && (called == "Stop" || called == "Finish") && caller != "attend" {
						t.Errorf("%s calls %s.%s: only the run's owner ends it", caller, on, called)
					}
				}
				return true
			})
		}
	}
}

// S4-21, S4-33: a client says what it wants and why. It cannot say what was
// running: there is no such field, and a new one has to be looked at here.
func TestS4_21_ARequestIsAnIntent(t *testing.T) {
	want := []string{"reason", "by", "grace_ms", "signal", "wait_result_ms", "no_wait", "take", "idempotency_key"}
	var got []string
	c := reflect.TypeFor[wire.Cancel]()
	for i := range c.NumField() {
		name, _, _ := strings.Cut(c.Field(i).Tag.Get("json"), ",")
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the fields of a cancel are %v, want %v", got, want)
	}
}

// S4-11: what runs is told by one thing, the runs that the journal's rows made.
// There is no second map of what is running, in a struct or a variable.
func TestS4_11_NoSecondViewOfWhatRuns(t *testing.T) {
	allowed := map[string]string{
		"runs":     "the live runs",
		"names":    "an index of runs, by name",
		"keys":     "an index of runs, by key",
		"live":     "an index of runs, by session",
		"owed":     "ends that the journal says are owed, by session",
		"sessions": "the fold of the journal's sessions",
		"readers":  "processes that are watched",
		"pids":     "an index of runs, by the number of a leader that is the keeper's child",
	}
	for file, f := range readSource(t, ".").files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				if _, ok := n.Type.(*ast.MapType); ok {
					for _, name := range n.Names {
						if allowed[name.Name] == "" && !insideFunc(f, n) {
							t.Errorf("%s: a map called %s: state is the fold of the journal", file, name.Name)
						}
					}
				}
			case *ast.GenDecl:
				if n.Tok != token.VAR {
					return true
				}
				for _, s := range n.Specs {
					for i, v := range s.(*ast.ValueSpec).Names {
						if isMap(s.(*ast.ValueSpec), i) && !insideFunc(f, n) {
							t.Errorf("%s: a map called %s for the whole package", file, v.Name)
						}
					}
				}
			}
			return true
		})
	}
}

func isMap(s *ast.ValueSpec, i int) bool {
	if _, ok := s.Type.(*ast.MapType); ok {
		return true
	}
	if i < len(s.Values) {
		if lit, ok := s.Values[i].(*ast.CompositeLit); ok {
			_, ok := lit.Type.(*ast.MapType)
			return ok
		}
	}
	return false
}

// insideFunc tells whether a declaration lives only as long as a call.
func insideFunc(f *ast.File, n ast.Node) bool {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Pos() <= n.Pos() && n.End() <= fn.End() {
			return true
		}
	}
	return false
}

// S4-47: tests take the path that production takes. Nothing is decided by a
// hook, a build tag or the question whether a test runs.
func TestS4_47_NoPathForTestsAlone(t *testing.T) {
	src := readSource(t, ".")
	for name := range src.reach("decide") {
		for _, fn := range src.funcs[name] {
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "Hooks" || s.Sel.Name == "hook" || strings.HasSuffix(text(s.X), "cfg")) {
					t.Errorf("%s looks at %s", name, text(s))
				}
				return true
			})
		}
	}
	for _, dir := range []string{".", "wire", "journal", "keeper", "outcome", "api", "client", "../cmd/procsup", "../cmd/procsupd"} {
		for file, f := range readSource(t, dir).files {
			for _, imp := range f.Imports {
				if imp.Path.Value == `"testing"` {
					t.Errorf("%s/%s imports testing", dir, file)
				}
			}
			for _, c := range f.Comments {
				if tag, ok := strings.CutPrefix(c.List[0].Text, "//go:build "); ok && !systemTag(tag) {
					t.Errorf("%s/%s is built by %q", dir, file, tag)
				}
			}
		}
	}
	hooked := map[string]bool{}
	for name, fns := range src.funcs {
		for _, fn := range fns {
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Hooks" {
					hooked[name] = true
				}
				return true
			})
		}
	}
	if got, want := slices.Sorted(maps.Keys(hooked)), []string{"hook", "retain"}; !slices.Equal(got, want) { // each only calls it
		t.Errorf("hooks are read in %v, want %v", got, want)
	}
}

// systemTag tells whether a build tag says nothing but for which system.
func systemTag(tag string) bool {
	for _, word := range strings.FieldsFunc(tag, func(r rune) bool { return strings.ContainsRune("!&|() ", r) }) {
		if !slices.Contains([]string{"linux", "darwin", "windows", "unix"}, word) {
			return false
		}
	}
	return true
}
