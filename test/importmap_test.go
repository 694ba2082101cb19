// Package test holds what is checked of the project as a whole: its shape
// here, its behaviour in test/e2e, its endurance in test/chaos.
package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A rule is one line of the import map: what a package may import of ours and
// of others, and why the line is as it is.
type rule struct {
	ours   []string // import paths below the module; a trailing /... is a prefix
	others []string // third-party module paths
	why    string
}

// The import map of the project. Imports point down. A package that is not in
// it fails the test: add a line, with its reason, where it belongs.
var importMap = map[string]rule{
	"platform": {nil, []string{"golang.org/x/sys", "github.com/shirou/gopsutil/v3"},
		"facts of the OS know nothing of procsup; gopsutil only off Linux"},
	"capture": {nil, []string{"golang.org/x/sys"},
		"bytes and offsets: usable without processes, so it knows no process"},
	"pgroup": {[]string{"platform"}, []string{"golang.org/x/sys"},
		"one group and its tree; embeddable, so no records, no capture, no CLI"},
	"handles": {[]string{"platform"}, []string{"github.com/oklog/ulid/v2"},
		"ids, states and records cross the socket: plain values, no behaviour of a daemon"},
	"supervisor": {[]string{"platform", "capture", "pgroup", "handles", "supervisor/journal", "supervisor/keeper", "supervisor/outcome", "supervisor/ready", "supervisor/wire"},
		[]string{"golang.org/x/sys", "github.com/fsnotify/fsnotify"},
		"embeds with no daemon: it decides, and is not reached by HTTP"},
	"supervisor/journal": {[]string{"handles", "platform", "supervisor/wire"}, []string{"modernc.org/sqlite", "golang.org/x/sys"},
		"the only package that may link SQLite"},
	"supervisor/keeper": {[]string{"platform", "pgroup", "handles"}, []string{"golang.org/x/sys"},
		"holds descriptors and reaps; knows no policy and writes no file"},
	"supervisor/outcome": {[]string{"platform", "capture", "pgroup", "handles"}, nil,
		"what came of a command, in the words of handles: shared by procsup run and the supervisor, so that every door tells the same"},
	"supervisor/ready": {[]string{"platform", "pgroup", "capture", "handles"}, []string{"golang.org/x/sys", "github.com/fsnotify/fsnotify"},
		"conditions and probes, no decisions about runs; pgroup for exec:, whose group has to be ended, fsnotify for file:"},
	"supervisor/wire": {[]string{"handles"}, nil,
		"paths, JSON bodies and codes: both ends share it, so it has no behaviour"},
	"supervisor/api": {[]string{"supervisor", "supervisor/journal", "supervisor/wire", "handles", "capture", "platform"}, []string{"github.com/danielgtaylor/huma/v2"},
		"an http.Handler over a Supervisor; decides nothing; of the journal only the filter and the report that Supervisor's methods speak"},
	"supervisor/client": {[]string{"supervisor/wire", "handles", "platform"}, []string{"golang.org/x/sys"},
		"linked into every procsup, so nothing heavy, nothing of the daemon and, see light, no package net"},
	"cmd/procsup": {[]string{"platform", "pgroup", "capture", "handles", "supervisor/client", "supervisor/outcome", "supervisor/wire", "cmd/procsup/..."},
		[]string{"github.com/urfave/cli/v2", "github.com/creack/pty", "golang.org/x/sys"},
		"the thin command: what it links is start-up time in every run"},
	"cmd/procsupd": {[]string{"platform", "pgroup", "capture", "handles", "supervisor", "supervisor/...", "cmd/procsupd/internal/..."},
		[]string{"github.com/urfave/cli/v2", "golang.org/x/sys", "golang.org/x/tools", "github.com/coreos/go-systemd/v22", "github.com/fsnotify/fsnotify", "github.com/DeRuina/timberjack", "github.com/prometheus/client_golang"},
		"the daemon: everything that procsup itself must not carry; of x/tools the front for go vet -vettool"},
	"cmd/procsupd/internal/lint": {nil, []string{"mvdan.cc/sh/v3", "golang.org/x/tools"},
		"bytes in, findings out: it knows nothing of the daemon; the shell parser and go/analysis are linked here alone"},
	"cmd/procsupd/internal/mcp": {[]string{"supervisor/client", "supervisor/wire", "handles", "capture", "platform"}, []string{"github.com/modelcontextprotocol/go-sdk", "github.com/google/jsonschema-go"},
		"a client of the daemon that speaks MCP; capture only for how text is shown, platform for the end of who reads it; jsonschema-go comes with the SDK"},
	"test/bench": {[]string{"pgroup", "capture", "platform", "handles", "supervisor/client", "supervisor/wire", "supervisor/journal"}, []string{"golang.org/x/sys"},
		"measures the packages and the commands; part of neither"},
	"test/ablate": {nil, nil,
		"takes rules out of a copy of the source: it needs the text of the product, not its code"},
	"test/bench/empty":    {nil, nil, "the floor of item 1"},
	"test/bench/gowrap":   {nil, nil, "the 30-line wrapper of item 1"},
	"test/bench/goclient": {nil, nil, "the bare client of item 2"},
	"test/chaos":          {nil, nil, "tests only"},
	"test/e2e":            {nil, nil, "tests only"},
	"test/say":            {nil, []string{"golang.org/x/sys"}, "a command of tests that notifies"},
	"test/nest":           {nil, nil, "a cgroup of their own for test processes"},
	"test/naive": {nil, nil,
		"the wrapper that everybody writes first: it must share nothing with procsup, the tests are proven against it"},
	"test/child": {nil, []string{"golang.org/x/sys"},
		"the helper process of tests; every package's tests may use it"},
}

// heavy must not be among what procsup links: each costs start-up time in
// every `procsup run`.
var heavy = []string{
	"modernc.org/", "github.com/mattn/go-sqlite3", "github.com/ncruces/", "zombiezen.com/",
	"github.com/danielgtaylor/huma", "github.com/modelcontextprotocol/", "charm.land/", "github.com/charmbracelet/",
	"github.com/rivo/", "github.com/prometheus/", "go.opentelemetry.io/", "procsup/supervisor/api", "procsup/supervisor/journal",
	"mvdan.cc/sh/", "golang.org/x/tools/",
}

// mayHTTP are the packages that may reach net/http, directly or not; the bench
// has the bare daemon and client to compare with.
var mayHTTP = []string{"supervisor/api", "cmd/procsupd", "test/bench"}

// light are the packages that may not even reach net: linking it costs every
// `procsup run` 0.8 ms of the 1.7 ms that a start may take.
var light = []string{"supervisor/client", "cmd/procsup"}

// topLevel is everything that may lie at the top of the tree.
var topLevel = []string{
	"go.mod", "go.sum", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore", ".ci",
	"cmd", "supervisor", "pgroup", "capture", "handles", "platform", "test",
}

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Module     *struct{ Path string }
}

const module = "procsup/"

func goList(t *testing.T, goos string) (ours []listed, moduleOf map[string]string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Deps,Module", "./...")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v\n%s", goos, err, stderr.String())
	}
	moduleOf = map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return ours, moduleOf
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Module == nil {
			continue // the standard library
		}
		moduleOf[p.ImportPath] = p.Module.Path
		if strings.HasPrefix(p.ImportPath, module) {
			ours = append(ours, p)
		}
	}
}

func TestImportMap(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			ours, moduleOf := goList(t, goos)
			if len(ours) == 0 {
				t.Fatal("go list found no package of ours")
			}
			for _, p := range ours {
				checkImports(t, p, moduleOf)
				checkReach(t, p, goos)
			}
		})
	}
}

// ruleFor finds the line of a package; a package below cmd/X is bound by the
// line of cmd/X.
func ruleFor(name string) (rule, bool) {
	if r, ok := importMap[name]; ok {
		return r, true
	}
	if parts := strings.Split(name, "/"); parts[0] == "cmd" && len(parts) > 2 {
		r, ok := importMap["cmd/"+parts[1]]
		return r, ok
	}
	return rule{}, false
}

func checkImports(t *testing.T, p listed, moduleOf map[string]string) {
	name := strings.TrimPrefix(p.ImportPath, module)
	if len(p.Imports) == 0 && strings.HasPrefix(name, "test") {
		return // a folder of tests only
	}
	r, ok := ruleFor(name)
	if !ok {
		t.Errorf("%s is not in the import map: add a line with its reason", name)
		return
	}
	for _, imp := range p.Imports {
		mod, third := moduleOf[imp]
		switch own := strings.TrimPrefix(imp, module); {
		case own != imp:
			if !slices.ContainsFunc(r.ours, func(s string) bool { return within(s, own) }) {
				t.Errorf("%s imports %s, which the map does not list (%s)", name, own, r.why)
			}
		case third:
			if !slices.Contains(r.others, mod) {
				t.Errorf("%s imports %s of %s, which the map does not list (%s)", name, imp, mod, r.why)
			}
		}
	}
}

func within(pattern, name string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(name, base+"/")
	}
	return pattern == name
}

func checkReach(t *testing.T, p listed, goos string) {
	name := strings.TrimPrefix(p.ImportPath, module)
	may := slices.ContainsFunc(mayHTTP, func(s string) bool { return strings.HasPrefix(name, s) })
	if !may && slices.Contains(p.Deps, "net/http") {
		t.Errorf("%s reaches net/http: only api, procsupd and the bench may", name)
	}
	if goos != "windows" && slices.Contains(light, name) && slices.Contains(p.Deps, "net") { // x/sys/windows brings it
		t.Errorf("%s reaches package net, which costs start-up time in every run", name)
	}
	if name != "cmd/procsup" {
		return
	}
	for _, dep := range p.Deps {
		for _, h := range heavy {
			if strings.HasPrefix(dep, h) {
				t.Errorf("cmd/procsup links %s: it costs start-up time in every run", dep)
			}
		}
	}
}

// files are the files of the tree, committed or about to be.
func files(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var names []string
	for _, name := range strings.Split(string(out), "\x00") {
		if _, err := os.Lstat("../" + name); name != "" && err == nil {
			names = append(names, name)
		}
	}
	return names
}

func TestTopLevel(t *testing.T) {
	for _, name := range files(t) {
		if top, _, _ := strings.Cut(name, "/"); !slices.Contains(topLevel, top) {
			t.Errorf("%s: %s is no top-level entry of this project", name, top)
		}
	}
}
