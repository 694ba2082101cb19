package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// S4-37: there is a patch for each rule of a stop, each fits the source as it
// is, and each names tests that exist.
func TestS4_37_EachRuleCanBeRemoved(t *testing.T) {
	if len(rules) < 12 {
		t.Errorf("only %d rules", len(rules))
	}
	tests := map[string]string{}
	seen := map[string]bool{}
	for _, r := range rules {
		if seen[r.name] || r.says == "" || len(r.tests) == 0 {
			t.Errorf("%s: twice, or says nothing, or has no test", r.name)
		}
		seen[r.name] = true
		src, err := os.ReadFile("../../" + r.file)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := r.patch(string(src)); err != nil {
			t.Error(err)
		}
		if tests[r.in()] == "" {
			tests[r.in()] = testsOf(t, r.in())
		}
		for _, name := range r.tests {
			if !strings.Contains(tests[r.in()], "func "+name+"(t *testing.T)") {
				t.Errorf("%s: there is no test %s in %s", r.name, name, r.in())
			}
		}
	}
	if quick, err := choose("", true); err != nil || len(quick) < 5 || len(quick) == len(rules) {
		t.Errorf("-quick takes %d of %d rules, %v", len(quick), len(rules), err)
	}
	if _, err := choose("no-such-rule", false); err == nil {
		t.Error("-only takes a rule that there is not")
	}
}

func testsOf(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob("../../" + pkg + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// S4-37: a rule whose tests fail without it is fine; one that no test misses, a
// text that is not there and a patch that does not compile are all errors that
// name the rule; and the copy is then as it was.
func TestS4_37_WhatNobodyMissesIsReported(t *testing.T) {
	s, err := newScratch(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	fence := rules[2]
	if fence.name != "fence" {
		t.Fatal("the third rule is another one now")
	}
	unmissed, moved, broken, untested := fence, fence, fence, fence
	unmissed.new = "_ = fence\n\t" + fence.old
	moved.old = "no such text"
	broken.new = "return nonsense"
	untested.tests = []string{"TestNobodyWrote"}
	for name, c := range map[string]struct {
		r    rule
		want string
	}{
		"missed":   {fence, "^$"},
		"unmissed": {unmissed, "fence .*passes without it: TestS4_43_Fence"},
		"moved":    {moved, "fence: .*the rule moved"},
		"broken":   {broken, "does not compile"},
		"untested": {untested, "there is no test TestNobodyWrote"},
	} {
		_, err := s.without(c.r)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if !regexp.MustCompile(c.want).MatchString(text) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	have, err := os.ReadFile(filepath.Join(s.dir, fence.file))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile("../../" + fence.file); err != nil || string(have) != string(want) {
		t.Errorf("the copy is not as it was: %v", err)
	}
	if err := s.allPass([]rule{fence}); err != nil {
		t.Error(err)
	}
}
