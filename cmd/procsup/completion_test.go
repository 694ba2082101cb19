//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// offered are the words that a question is answered with.
func (b *bench) offered(words ...string) (out []string) {
	b.t.Helper()
	r := b.run(append([]string{completeVerb, "--"}, words...)...)
	if r.code != 0 || r.err != "" {
		b.t.Fatalf("complete %q: exit %d, %s", words, r.code, r.err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(r.out, "\n"), "\n") {
		word, _, _ := strings.Cut(line, "\t")
		out = append(out, word)
	}
	return out
}

func TestComplete(t *testing.T) {
	b := newBench(t)
	if got := b.offered("cancel", ""); !slices.Equal(got, []string{""}) {
		t.Errorf("without a daemon: %q", got)
	}
	if r := b.run("daemon", "--status"); r.code != exitNoDaemon {
		t.Errorf("a completion started a daemon: exit %d", r.code)
	}
	h := b.start("--name", "web", "-S", "agent", "--", "sleep", "100")
	for name, tc := range map[string]struct {
		words, want []string
		exact       bool
	}{
		"verbs":            {words: []string{"wai"}, want: []string{"wait", "wait-output"}},
		"all verbs":        {words: []string{""}, want: []string{"run", "start", "session", "completion"}},
		"verbs of a verb":  {words: []string{"session", "o"}, want: []string{"open"}, exact: true},
		"flags":            {words: []string{"run", "--dead"}, want: []string{"--deadline"}, exact: true},
		"names and ids":    {words: []string{"cancel", ""}, want: []string{"web", h}, exact: true},
		"an id":            {words: []string{"logs", h[:10]}, want: []string{h}, exact: true},
		"behind a flag":    {words: []string{"wait", "--timeout", "3s", "w"}, want: []string{"web"}, exact: true},
		"a second handle":  {words: []string{"wait", "web", "w"}, want: []string{"web"}, exact: true},
		"only one handle":  {words: []string{"show", "web", "w"}, want: []string{""}, exact: true},
		"sessions":         {words: []string{"list", "-S", "a"}, want: []string{"agent"}, exact: true},
		"session by name":  {words: []string{"session", "close", "ag"}, want: []string{"agent"}, exact: true},
		"signals":          {words: []string{"signal", "web", "T"}, want: []string{"TERM"}, exact: true},
		"a flag's signals": {words: []string{"run", "--stop-signal", "I"}, want: []string{"INT"}, exact: true},
		"a file":           {words: []string{"run", "--capture", "x"}, want: []string{":file"}, exact: true},
		"a command":        {words: []string{"run", "--deadline", "3s", "g"}, want: []string{":command 4"}, exact: true},
		"behind dashes":    {words: []string{"start", "--", "git", "lo"}, want: []string{":command 3"}, exact: true},
		"a command's word": {words: []string{"run", "git", "lo"}, want: []string{":command 2"}, exact: true},
		"no verb":          {words: []string{"nonsense", ""}, want: []string{""}, exact: true},
		"conditions":       {words: []string{"await", "--any", "u"}, want: []string{"unix:"}, exact: true},
		"await's flags":    {words: []string{"await", "tcp:h:1", "--t"}, want: []string{"--timeout"}, exact: true},
		"await's command":  {words: []string{"await", "tcp:h:1", "--", "gi"}, want: []string{":command 4"}, exact: true},
		"daemon's flags":   {words: []string{"daemon", "--sto"}, want: []string{"--stop"}, exact: true},
		"a shell":          {words: []string{"completion", "z"}, want: []string{"zsh"}, exact: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.offered(tc.words...)
			if tc.exact && !slices.Equal(got, tc.want) {
				t.Errorf("%q: %q, want %q", tc.words, got, tc.want)
			}
			for _, w := range tc.want {
				if !slices.Contains(got, w) {
					t.Errorf("%q: no %q in %q", tc.words, w, got)
				}
			}
		})
	}
}

// The scripts do what they say in the shells that are installed.
func TestCompletionInShells(t *testing.T) {
	b := newBench(t)
	b.start("--name", "webserver", "--", "sleep", "100")
	for shell, script := range map[string]string{
		"bash": `source <(procsup completion bash)
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _procsup; printf '%s\n' "${COMPREPLY[@]}"; }
ask procsup cancel webs
ask procsup wait-o
ask procsup run --deadl`,
		"zsh": `autoload -Uz compinit; compinit -u -D
source <(procsup completion zsh)
_describe() { print -rl -- "${(@P)2}" }  # what would be offered
ask() { words=("$@"); CURRENT=$#; _procsup }
ask procsup cancel webs
ask procsup wait-o
ask procsup run --deadl`,
		"fish": `procsup completion fish | source
complete -C 'procsup cancel webs'
complete -C 'procsup wait-o'
complete -C 'procsup run --deadl'`,
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				if os.Getenv("PROCSUP_NO_SKIP") != "" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			cmd := exec.CommandContext(t.Context(), path, "-c", script)
			cmd.Dir, cmd.Env = t.TempDir(), append(b.env, "HOME="+t.TempDir(), "TERM=dumb")
			out, err := cmd.CombinedOutput()
			for _, want := range []string{"webserver", "wait-output", "deadline"} {
				if err != nil || !strings.Contains(string(out), want) {
					t.Errorf("%s: %v, no %s in:\n%s", shell, err, want, out)
				}
			}
		})
	}
}

// Each verb has a page with examples, and man finds nothing wrong with it.
func TestManPages(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	if r := b.run("man", "--all", dir); r.code != 0 {
		t.Fatalf("man --all: exit %d, %s", r.code, r.err)
	}
	app := newApp(os.Stdout, os.Stderr, nil)
	pages := []string{"procsup"}
	for _, c := range visible(app.Commands) {
		pages = append(pages, "procsup-"+c.Name)
		for _, sub := range visible(c.Subcommands) {
			pages = append(pages, "procsup-"+c.Name+"-"+sub.Name)
		}
	}
	for _, page := range pages {
		path := filepath.Join(dir, page+".1")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{".SH NAME\n", ".SH SYNOPSIS\n", ".SH EXAMPLES\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q", page, want)
			}
		}
		if flag := map[string]string{"procsup-daemon": "keep\\-records", "procsup-await": "\\-\\-quiet"}[page]; !strings.Contains(string(text), flag) {
			t.Errorf("%s does not tell of %s", page, flag)
		}
		if _, err := exec.LookPath("man"); err != nil {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANROFFSEQ=")
		var warned strings.Builder
		cmd.Stderr = &warned
		if err := cmd.Run(); err != nil || warned.Len() > 0 {
			t.Errorf("man %s: %v\n%s", page, err, &warned)
		}
	}
	if r := b.run("man", "nonsense"); r.code != exitUsage {
		t.Errorf("man nonsense: exit %d", r.code)
	}
}
