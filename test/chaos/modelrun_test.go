//go:build linux

package chaos

import (
	"flag"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

var (
	modelChecks = flag.Int("model-checks", 0, "`runs` of the model, 0 = a few")
	modelSteps  = flag.Int("model-steps", 60, "`steps` of each")
)

// checkModel compares a model with a house after every step. -rapid.seed repeats
// one.
func checkModel(t *testing.T, checks int, house func(*testing.T) (house, func()), kills bool) {
	if *modelChecks > 0 {
		checks = *modelChecks
	}
	for name, value := range map[string]any{"checks": checks, "steps": *modelSteps, "nofailfile": true, "shrinktime": "10s"} {
		if err := flag.Set("rapid."+name, fmt.Sprint(value)); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		h, closed := house(t)
		defer closed()
		w := newWorld(t, h, t.TempDir())
		defer w.leave()
		steps := w.steps()
		if kills {
			steps["kill"], steps["kill2"] = w.kill, w.kill
		}
		rt.Repeat(steps)
	})
}

// S4-06, S1-35, S1-11, S1-23, A22: whatever callers do in whatever order, runs,
// sessions and inboxes are what the model says; also after a restart.
func TestModel(t *testing.T) {
	checkModel(t, 6, func(t *testing.T) (house, func()) {
		e := newEmbedded(t)
		return e, func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}, false)
}

// A7, S4-06: the same of a daemon whose supervisor is killed in the middle of
// steps, or replaced.
func TestModelOfADaemon(t *testing.T) {
	checkModel(t, 4, func(t *testing.T) (house, func()) {
		s := newServed(t)
		return s, func() {
			for _, c := range s.clients {
				c.Close()
			}
			s.stop(t)
		}
	}, true)
}
