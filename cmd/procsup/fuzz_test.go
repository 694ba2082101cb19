package main

import (
	"math"
	"strings"
	"testing"
)

// What people and scripts write behind flags: an error, or a value that can be
// used.
func FuzzFlagValues(f *testing.F) {
	for _, s := range []string{"", "10m", "1.5", "-1s", "9223372036.9", "1e300", "NaN", "-0", "10M", "8191P", "9223372036854775807", "8388608T", " 1 kib ", "1BB", "+5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := parseDuration(s); err == nil && d < 0 {
			t.Errorf("duration %q is %d", s, d)
		} else if err != nil && !strings.Contains(err.Error(), "\"") {
			t.Errorf("duration %q: %v names no value", s, err)
		}
		if n, err := parseSize(s); err == nil && (n <= 0 || n > math.MaxInt64) {
			t.Errorf("size %q is %d", s, n)
		}
	})
}

// Environments: each name once, each K=V, and nothing that was not asked for.
func FuzzEnvironment(f *testing.F) {
	f.Add("PATH=/bin\nLC_ALL=C\nX=1", "minimal", "X=2\nX=3")
	f.Add("A=\n=B\nC", "inherit", "")
	f.Add("A=1\nA=2", "inherit", "A")
	f.Fuzz(func(t *testing.T, inherited, mode, set string) {
		var add []string
		if set != "" {
			add = strings.Split(set, "\n")
		}
		env, err := environment(strings.Split(inherited, "\n"), mode, add)
		if err != nil {
			return
		}
		for _, kv := range add {
			name, _, ok := strings.Cut(kv, "=")
			if !ok || name == "" {
				t.Errorf("%q was taken", kv)
			}
		}
		seen := map[string]bool{}
		for _, kv := range env {
			name, _, _ := strings.Cut(kv, "=")
			if len(add) > 0 && seen[name] && strings.Contains("\n"+set, "\n"+name+"=") {
				t.Errorf("%q twice in %q", name, env)
			}
			seen[name] = true
		}
	})
}
