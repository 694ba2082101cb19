package supervisor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		began := time.Now()
		for range 4 * paceMost {
			if !p.step(t.Context()) {
				t.Fatal("it was not let through")
			}
		}
		if d := time.Since(began); d < 3*time.Second || d > 4*time.Second {
			t.Errorf("%d steps took %v", 4*paceMost, d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range paceMost + 1 {
			if !p.step(ctx) {
				return
			}
		}
		t.Error("an ended context lets through")
	})
}
