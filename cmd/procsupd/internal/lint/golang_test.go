package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wanted are the verdicts that a file asks for: line, verdict, variable.
func wanted(src []byte) (list []string) {
	want := regexp.MustCompile(`// want ([A-Z]+) ?(\w*)$`)
	for i, line := range strings.Split(string(src), "\n") {
		if m := want.FindStringSubmatch(line); m != nil {
			list = append(list, fmt.Sprint(i+1, " ", m[1], " ", m[2]))
		}
	}
	return list
}

// TestGo: S2-33 for Go, each file by itself. S2-31: good.go holds the deferred
// cleanups, bad.go what an early return leaves.
func TestGo(t *testing.T) {
	for _, name := range []string{"bad.go", "good.go"} {
		file := filepath.Join("testdata/golang", name)
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range Check(file, src, "") {
			got = append(got, fmt.Sprint(f.Line, " ", f.Verdict, " ", f.Name))
			if f.Level != Warning || f.Fix == "" {
				t.Errorf("not whole: %+v", f)
			}
			t.Log(f)
		}
		if want := wanted(src); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, want)
		}
	}
}

// TestGoPackages: the same, by go vet with the types of all packages. S2-33.
func TestGoPackages(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "procsupd")
	if out, err := exec.Command("go", "build", "-o", tool, "procsup/cmd/procsupd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	src, err := os.ReadFile("testdata/vetted/bad.go")
	if err != nil {
		t.Fatal(err)
	}
	want := wanted(src)
	out, err := exec.Command("go", "vet", "-vettool="+tool, "./testdata/vetted").CombinedOutput()
	if err == nil || strings.Count(string(out), "bad.go:") != len(want) {
		t.Errorf("go vet: %v, want %d findings\n%s", err, len(want), out)
	}
	out, err = exec.Command(tool, "lint", "./testdata/vetted/...").Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d findings, want %d\n%s", len(lines), len(want), out)
	}
	for i, w := range want {
		line, _, _ := strings.Cut(w, " ")
		if !strings.HasPrefix(lines[i], "testdata/vetted/bad.go:"+line+":") {
			t.Errorf("%s\nwant line %s", lines[i], line)
		}
	}
}

// TestDeclared: what a single file is checked with is what our packages have.
func TestDeclared(t *testing.T) {
	for _, part := range strings.Split(declared, "-- ")[1:] {
		pkg, src, _ := strings.Cut(part, " --\n")
		have := map[string]int{}
		dir := filepath.Join("../../../..", strings.TrimPrefix(pkg, "procsup/"))
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files, %v", dir, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			collectFuncs(t, string(b), have)
		}
		said := map[string]int{}
		collectFuncs(t, src, said)
		for name, results := range said {
			if n, ok := have[name]; !ok || n != results {
				t.Errorf("%s: %s gives %d results, declared are %d (found: %v)", pkg, name, n, results, ok)
			}
		}
	}
	for name, s := range starters {
		if !strings.Contains(name, "procsup/") || len(s.enders) == 0 || s.fix == nil {
			t.Errorf("starter %s is not whole", name)
		}
	}
}

func collectFuncs(t *testing.T, src string, into map[string]int) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !fn.Name.IsExported() {
			continue
		}
		name := fn.Name.Name
		if fn.Recv != nil {
			if star, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
				name = fmt.Sprint(star.X, ".", name)
			}
		}
		into[name] = fn.Type.Results.NumFields()
	}
}
