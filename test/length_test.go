package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Longer than this is a sign that a file or a function does two things.
const (
	maxFile     = 400
	maxFunction = 60
)

func TestLengths(t *testing.T) {
	fset := token.NewFileSet()
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		path := filepath.Join("..", name)
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(src), "\n"); n > maxFile {
			t.Errorf("%s has %d lines, more than %d", name, n, maxFile)
		}
		f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
			switch {
			case n <= maxFunction:
			case strings.HasSuffix(name, "_test.go"):
				t.Logf("%s: %s has %d lines (a test: reported, not refused)", name, fn.Name.Name, n)
			default:
				t.Errorf("%s: %s has %d lines, more than %d", name, fn.Name.Name, n, maxFunction)
			}
		}
	}
}
