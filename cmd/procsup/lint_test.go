//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/urfave/cli/v2"
)

const (
	leaky = "#!/bin/bash\nset -e\nserver --port 80 &\n./work\n"
	tidy  = "#!/bin/bash\nset -e\nh=$(procsup start -- server)\ntrap 'procsup cancel \"$h\"' EXIT\n./work\n"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// S2-33: one warning with line and name, none for the good example.
// S2-34: a warning is no error, unless --error says so.
func TestLintExit(t *testing.T) {
	b := newBench(t)
	bad, good := write(t, "bad.sh", leaky), write(t, "good.sh", tidy)
	out := b.want(0, "lint", bad) // S2-34
	if want := bad + ":3:1: warning: long-running-without-cleanup: \"server --port 80\" "; !strings.HasPrefix(out, want) || strings.Contains(out, "\n") {
		t.Errorf("got %q, want one line that begins with %q", out, want) // S2-33
	}
	if out := b.want(0, "lint", good, "--error"); out != "" { // S2-33, S2-34
		t.Errorf("the good example: %s", out)
	}
	if r := b.run("lint", "--error", bad); r.code != 1 || r.out != out+"\n" || r.err != "" { // S2-34
		t.Errorf("--error: %+v", r)
	}
	if out := b.want(0, "lint", bad, "--fix-hint"); !strings.Contains(out, "\n    fix: h=$(procsup start -- server --port 80); trap 'procsup cancel \"$h\"' EXIT") {
		t.Errorf("--fix-hint: %s", out) // S2-33
	}
	note := write(t, "note.sh", "systemctl start x\nsleep 9\n")
	if out := b.want(0, "lint", "--error", note); !strings.Contains(out, "note: sleep-for-readiness") { // a note fails nothing
		t.Errorf("a note: %s", out)
	}
}

func TestLintForms(t *testing.T) {
	b := newBench(t)
	bad := write(t, "bad.sh", leaky)
	var report struct {
		Files, Warnings int
		Findings        []struct {
			File, Rule, Verdict, Name, Fix string
			Line                           int
		}
	}
	if err := json.Unmarshal([]byte(b.want(0, "lint", "--json", bad)), &report); err != nil {
		t.Fatal(err)
	}
	if f := report.Findings; report.Files != 1 || report.Warnings != 1 || len(f) != 1 || f[0].File != bad || f[0].Line != 3 || f[0].Verdict != "NOCLEAN" || f[0].Name != "server --port 80" {
		t.Errorf("--json: %+v", report)
	}
	var sarif struct {
		Version string
		Runs    []struct{ Results []struct{ RuleID string } }
	}
	if err := json.Unmarshal([]byte(b.want(0, "lint", "--sarif", bad)), &sarif); err != nil {
		t.Fatal(err)
	}
	if sarif.Version != "2.1.0" || len(sarif.Runs) != 1 || len(sarif.Runs[0].Results) != 1 {
		t.Errorf("--sarif: %+v", sarif)
	}
	if r := b.runIn(leaky, "lint", "-"); r.code != 0 || !strings.HasPrefix(r.out, "stdin:3:1: warning: ") {
		t.Errorf("standard input: %+v", r)
	}
	if r := b.runIn("package x\n\nfunc f( {\n", "lint", "--lang", "go", "-"); !strings.Contains(r.out, "stdin:3:9: warning: syntax: ") {
		t.Errorf("Go on standard input: %+v", r)
	}
	if out := b.want(0, "lint", "--help"); !strings.Contains(out, "Examples:") || !strings.Contains(out, "--fix-hint") {
		t.Errorf("--help: %s", out)
	}
}

// The flags that procsup tells of are those that procsupd takes.
func TestLintFlags(t *testing.T) {
	b := newBench(t)
	good := write(t, "good.sh", tidy)
	for _, f := range lintCommand().Flags {
		args := []string{"lint", "--" + f.Names()[0]}
		if _, is := f.(*cli.BoolFlag); !is {
			args = append(args, "sh")
		}
		b.want(0, append(args, good)...)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(b.bin, daemonName), "lint", "--help")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^  -([a-z-]+)`).FindAllStringSubmatch(string(out), -1) {
		if !hasFlag(lintCommand().Flags, m[1]) {
			t.Errorf("procsup lint --help does not tell of --%s", m[1])
		}
	}
}

func TestLintBadInput(t *testing.T) {
	b := newBench(t)
	bad, dir := write(t, "bad.sh", leaky), t.TempDir()
	missing := filepath.Join(dir, "none.sh")
	r := b.run("lint", missing, bad) // the others are looked at
	if r.code != exitProcsup || !strings.Contains(r.err, missing) || !strings.Contains(r.out, "warning") {
		t.Errorf("a missing file: %+v", r)
	}
	if r := b.run("lint", dir); r.code != exitProcsup || !strings.Contains(r.err, dir+" is a directory") {
		t.Errorf("a directory: %+v", r)
	}
	if out := b.want(0, "lint", write(t, "x.sh", "echo\nif true; then\n")); !strings.Contains(out, "x.sh:2:10: warning: syntax: ") {
		t.Errorf("not parsable: %s", out)
	}
	for _, args := range [][]string{{}, {"--json", "--sarif", bad}, {"--lang", "perl", bad}, {"--no-such-flag", bad}} {
		if r := b.run(append([]string{"lint"}, args...)...); r.code != exitUsage || r.err == "" || r.out != "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
	alone := t.TempDir()
	data, err := os.ReadFile(filepath.Join(b.bin, "procsup"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(alone, "procsup"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(alone, "procsup"), "lint", bad)
	cmd.Env = append(b.env, "PATH=/usr/bin:/bin")
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != exitNoDaemon || !strings.Contains(string(out), daemonName) {
		t.Errorf("without procsupd: exit %d, %s", code, out)
	}
}

// S2-31: a script with the line that the lint says leaves nothing, when it
// fails in the middle and when a signal ends it; and the lint is silent.
func TestLintFixHolds(t *testing.T) {
	for _, shell := range []string{"bash", "sh"} {
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		bad := write(t, "bad.sh", "#!/bin/"+shell+"\nsleep infinity &\necho up\nread line\n")
		b := newBench(t)
		fix := hintOf(t, b.want(0, "lint", "--fix-hint", bad))
		for _, end := range []string{"fails", "TERM"} {
			script := "#!/bin/" + shell + "\nset -e\n" + fix + "\necho up\nread line\n"
			if out := b.want(0, "lint", "--error", write(t, "fixed.sh", script)); out != "" {
				t.Errorf("%s: the fix is found fault with: %s", shell, out)
			}
			endScript(t, b, shell, script, end)
			if live := b.want(0, "list"); strings.Contains(live, "infinity") {
				t.Errorf("%s, %s: left behind:\n%s", shell, end, live)
			}
		}
		if all := b.want(0, "list", "--all"); strings.Count(all, "infinity") != 2 {
			t.Errorf("%s: the scripts did not start what they should:\n%s", shell, all)
		}
	}
}

// hintOf is the first line to write instead.
func hintOf(t *testing.T, out string) string {
	t.Helper()
	_, fix, ok := strings.Cut(out, "    fix: ")
	if !ok {
		t.Fatalf("no hint in %q", out)
	}
	fix, _, _ = strings.Cut(fix, "\n")
	return fix
}

// endScript runs a script until it says up and ends it: by an end of its
// input, at which read fails, or by a signal.
func endScript(t *testing.T, b *bench, shell, script, end string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), shell, "-c", script)
	cmd.Env = b.env
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err != nil || line != "up\n" {
		t.Errorf("the script says %q, %v", line, err)
	}
	if end == "TERM" {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	} else {
		in.Close()
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("the script ended well; it should have failed (%s)", end)
	}
}

// Every verb and flag that a hint names is one of ours.
func TestLintHintsAreReal(t *testing.T) {
	b := newBench(t)
	shapes, err := filepath.Glob("../procsupd/internal/lint/testdata/shell/*.sh")
	if err != nil || len(shapes) == 0 {
		t.Fatalf("no shapes: %v", err)
	}
	app, seen := newApp(io.Discard, io.Discard, nil), 0
	for line := range strings.Lines(b.want(0, append([]string{"lint", "--fix-hint"}, shapes...)...)) {
		fix, ok := strings.CutPrefix(line, "    fix: ")
		if !ok {
			continue
		}
		for _, part := range strings.Split(fix, "procsup ")[1:] {
			words := strings.Fields(part)
			cmd := app.Command(words[0])
			if cmd == nil {
				t.Errorf("no verb %q: %s", words[0], fix)
				continue
			}
			seen++
			for _, w := range words[1:] {
				if w == "--" {
					break
				}
				if name, ok := strings.CutPrefix(w, "--"); ok && !hasFlag(cmd.Flags, name) {
					t.Errorf("procsup %s has no flag --%s: %s", words[0], name, fix)
				}
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d hints seen", seen)
	}
}

func hasFlag(flags []cli.Flag, name string) bool {
	return slices.ContainsFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}
