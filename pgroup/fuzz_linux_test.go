package pgroup

import (
	"strings"
	"testing"
)

// FuzzParseGuard: the guard takes its arguments as they are meant, or not at
// all; what it takes names a process that may be signalled.
func FuzzParseGuard(f *testing.F) {
	f.Add("5 true 15 2s 250ms 0 /cg token 7")
	f.Add("1 true 15 2s 250ms 0   0")
	f.Add("99999999999999999999 x x x x x x x x")
	f.Add("2 false -9 -1s 1h -5 a b 18446744073709551615")
	f.Fuzz(func(t *testing.T, line string) {
		r, l, _, err := parseGuard(strings.Split(line, " "))
		if err == nil && (r.PID <= 1 || l.Signal < 0 || l.Signal > 64) {
			t.Errorf("%q: process %d, signal %d", line, r.PID, l.Signal)
		}
		if _, err := ParseLevel(line); err == nil && len(line) > 10 {
			t.Errorf("level %q", line)
		}
		if _, err := ParseLeftover(line); err == nil && len(line) > 10 {
			t.Errorf("leftover %q", line)
		}
	})
}
