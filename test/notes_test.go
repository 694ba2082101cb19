package test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// versions are the sections of the CHANGELOG, by version.
func versions(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range strings.Split(string(b), "\n## ")[1:] {
		name, body, _ := strings.Cut(s, "\n")
		out[name] = body
	}
	if len(out) == 0 {
		t.Fatal("the CHANGELOG has no version")
	}
	return out
}

// S4-50, S4-49: each version says what was verified and by whom, what was only
// built, what was not verified, and what its text or code took over from
// elsewhere.
func TestS4_50_WhatWasVerifiedAndWhatWasNot(t *testing.T) {
	for name, body := range versions(t) {
		for _, list := range []string{`Verified by [^\n]+:`, `Built and vetted, not run:`, `Not verified:`, `Taken over:`} {
			at := regexp.MustCompile(`(?m)^` + list).FindStringIndex(body)
			if at == nil {
				t.Errorf("%s: no list %q", name, list)
				continue
			}
			rest := strings.TrimSpace(body[at[1]:])
			if para, _, _ := strings.Cut(rest, "\n\n"); len(para) < 10 {
				t.Errorf("%s: the list %q is empty", name, list)
			}
		}
	}
}

// S4-49: code that says it comes from elsewhere is in the CHANGELOG's list.
func TestS4_49_WhatIsTakenOverSaysSo(t *testing.T) {
	var all strings.Builder
	for _, body := range versions(t) {
		_, after, _ := strings.Cut(body, "\nTaken over:")
		para, _, _ := strings.Cut(after, "\n\n")
		all.WriteString(para)
	}
	says := regexp.MustCompile(`(?i)//.*\b(copied|adapted|ported|derived) from\b`)
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".go") || name == "test/notes_test.go" {
			continue
		}
		b, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if line := says.Find(b); line != nil && !strings.Contains(all.String(), name) {
			t.Errorf("%s says %q, and the CHANGELOG's \"Taken over\" does not name it", name, line)
		}
	}
}

// S4-51: a test that passes only on a second try is not verified. CI has no
// second try: no step is repeated, none of our tests may fail and go on, and
// nothing in the tests asks for one.
func TestS4_51_NothingIsTriedAgain(t *testing.T) {
	b, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	again := regexp.MustCompile(`(?i)\b(retry|rerun|re-run|flaky|gotestsum|attempts?)\b`)
	for _, line := range strings.Split(string(b), "\n") {
		code, _, _ := strings.Cut(line, "#")
		if again.MatchString(code) {
			t.Errorf(".ci/run: %s", line)
		}
		if strings.Contains(code, "go test") && strings.Contains(code, "||") && !strings.Contains(code, `"${packages[@]}"`) { // Go's own, compared with and without us
			t.Errorf(".ci/run goes on after a failure: %s", line)
		}
	}
	if !strings.Contains(string(b), "set -euo pipefail") {
		t.Error(".ci/run does not end at the first failure")
	}
	skip := regexp.MustCompile(`(?i)t\.(Skip|Log)f?\("[^"]*flak`)
	for _, name := range files(t) {
		if !strings.HasSuffix(name, "_test.go") || name == "test/notes_test.go" {
			continue
		}
		src, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if m := skip.Find(src); m != nil {
			t.Errorf("%s: %s", name, m)
		}
	}
}
