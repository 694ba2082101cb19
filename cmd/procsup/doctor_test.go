package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"procsup/platform"
)

// runDoctor runs `procsup doctor` in this process.
func runDoctor(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	app := &cli.App{
		Name: "procsup", Writer: &out, ErrWriter: &out, Commands: []*cli.Command{doctorCommand()},
		ExitErrHandler: func(*cli.Context, error) {},
	}
	err := app.Run(append([]string{"procsup", "doctor"}, args...))
	return out.String(), err
}

// S2-21: what callers may rely on is told under stable names.
func TestDoctorJSON(t *testing.T) {
	out, err := runDoctor(t, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var names []string
	for name := range r {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"arch", "better", "capabilities", "containment", "features", "kernel", "os", "problems", "usable", "weaker", "why"}
	if !slices.Equal(names, want) {
		t.Errorf("fields %v, want %v", names, want)
	}
	caps, _ := r["capabilities"].(map[string]any)
	for _, name := range []string{"group_kill", "tree_kill", "cgroup_kill", "terminal", "crash_safe", "peer_identity"} {
		if _, ok := caps[name].(bool); !ok {
			t.Errorf("capabilities.%s is %v, want true or false", name, caps[name])
		}
	}
	if caps["group_kill"] != true {
		t.Error("group_kill is not true on Unix")
	}
	for _, list := range []string{"better", "weaker", "problems", "features"} {
		if _, ok := r[list].([]any); !ok {
			t.Errorf("%s is %v, want a list, [] when empty", list, r[list])
		}
	}
}

func TestDoctorText(t *testing.T) {
	out, err := runDoctor(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`containment   (cgroup|tree|group)`, `why           \S.*`,
		`  ok  group_kill          \S.*`, `  ok  pidfd_open          \S.*`, `  (ok|no)  state_folder        \S.*`,
	} {
		if !regexp.MustCompile("(?m)^" + line + "$").MatchString(out) {
			t.Errorf("no line like %q in\n%s", line, out)
		}
	}
}

// A bad level says what to do, and an unusable machine is code 125.
func TestDoctorReport(t *testing.T) {
	r := platform.Report{
		OS: "linux", Arch: "amd64", Containment: platform.ByTree, Why: "no cgroup2",
		Better: []string{"mount it", "or be root"}, Problems: []string{"no proc"},
		Features: []platform.Feature{{Name: "proc", Detail: "missing", Hint: "mount proc"}},
	}
	var e *exitError
	if err := verdict(r); !errors.As(err, &e) || e.code != exitProcsup || !strings.Contains(e.msg, "no proc") {
		t.Errorf("verdict %v, want code %d with the problem", err, exitProcsup)
	}
	if err := verdict(platform.Report{Usable: true, Containment: platform.ByGroup}); err != nil {
		t.Errorf("a weak level: %v", err)
	}
	var b strings.Builder
	if err := writeReport(&b, r); err != nil {
		t.Fatal(err)
	}
	want := `system        linux/amd64
containment   tree
why           no cgroup2
better        mount it
              or be root
problems      no proc
`
	if got := b.String(); !strings.HasPrefix(got, want) {
		t.Errorf("report\n%s\nwant\n%s", got, want)
	}
	if got, want := b.String(), "\nfeatures\n  no  proc                missing\n                          → mount proc\n"; !strings.HasSuffix(got, want) {
		t.Errorf("report\n%s\nwant at its end\n%s", got, want)
	}
}

func TestDoctorUsage(t *testing.T) {
	if _, err := runDoctor(t, "extra"); err == nil || !strings.Contains(err.Error(), "extra") {
		t.Errorf("an argument: %v", err)
	}
	if out, err := runDoctor(t, "--help"); err != nil || !strings.Contains(out, "procsup doctor --json | jq") {
		t.Errorf("help without examples: %v\n%s", err, out)
	}
}

// S2-21: other systems compile, and Windows claims no group kill.
func TestDoctorElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("builds for two other systems")
	}
	for _, target := range []string{"darwin/arm64", "windows/amd64"} {
		goos, goarch, _ := strings.Cut(target, "/")
		cmd := exec.Command("go", "build", "procsup/platform")
		cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", target, err, out)
		}
	}
	src, err := os.ReadFile("../../platform/features_windows.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(src, []byte("ByChild")) || bytes.Contains(src, []byte("GroupKill: ")) {
		t.Error("Windows claims more than ending the direct child")
	}
}
