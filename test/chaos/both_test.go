//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// A7, G23, S2-18, S3-82 as chaos: keeper and supervisor are killed at one
// moment under clients that start commands. Whoever lives is owned again,
// whoever ended is lost or has its end, at once; nothing runs twice, though
// the clients ask again under their keys; the new daemon answers.
func TestBothAreKilledUnderLoad(t *testing.T) {
	dir := shortDir(t)
	var total [5]atomic.Int64 // of the starts: completed, lost, interrupted, failed; commands that ran
	for round := range 2 * *rounds {
		d := startDaemon(t, dir)
		c := newCrowd(t, d, round)
		ctx, stop := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		asked := make(chan started, 10_000)
		for k := range 4 {
			clients.Go(func() { d.startUntil(ctx, fmt.Sprintf("%d-%d", round, k), c.dir, asked) })
		}
		moment := time.NewTimer(rand.N(120 * time.Millisecond))
		<-moment.C
		d.killBoth(t)
		stop()
		clients.Wait()
		close(asked)
		d = startDaemon(t, dir)
		if _, err := d.Hello(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.checkAlive(t, d, false)
		for s := range asked {
			total[d.checkStarted(t, s)].Add(1)
			total[4].Add(s.ran(t))
		}
		c.end(t, d)
		d.stop(t)
	}
	t.Logf("of the starts %d had their end, %d were lost, %d interrupted, %d failed; %d ran",
		total[0].Load(), total[1].Load(), total[2].Load(), total[3].Load(), total[4].Load())
}

// A started is a start that a client asked for; its answer may have been lost.
type started struct {
	req  wire.Start
	file string // a line for each time that it ran
	code int
}

func (s started) ran(t *testing.T) int64 {
	text, _ := os.ReadFile(s.file)
	n := int64(strings.Count(string(text), "ran"))
	if n > 1 {
		t.Errorf("%s ran %d times", s.req.Idempotency, n)
	}
	return n
}

// startUntil starts short commands one after the other.
func (d *daemon) startUntil(ctx context.Context, name, dir string, out chan<- started) {
	for i := 0; ctx.Err() == nil; i++ {
		key := fmt.Sprintf("%s-%d", name, i)
		s := started{file: filepath.Join(dir, "start-"+key), code: i % 5}
		s.req = shell(fmt.Sprintf("echo ran >>%s; sleep 0.0%d; exit %d", s.file, i%4, s.code))
		s.req.Idempotency, s.req.Lease = key, "service"
		out <- s
		_, _ = d.Start(ctx, s.req)
	}
}

// checkStarted asks for the start again under its key, and waits for its end.
func (d *daemon) checkStarted(t *testing.T, s started) int {
	t.Helper()
	before := s.ran(t)
	a, err := d.Start(t.Context(), s.req)
	if err != nil {
		t.Errorf("start %s again: %v", s.req.Idempotency, err)
		return 3
	}
	w, err := d.Wait(t.Context(), string(a.HandleID), 20*time.Second)
	if err != nil || w.Record == nil {
		t.Errorf("wait for %s: %+v, %v", s.req.Idempotency, w, err)
		return 3
	}
	switch rec := w.Record; {
	case rec.Status == handles.Lost && rec.Error != "":
		return 1
	case rec.Status == handles.Interrupted:
		if before > 0 {
			t.Errorf("%s ran, and is said never to have been started", s.req.Idempotency)
		}
		return 2
	case rec.ExitCode != nil && *rec.ExitCode == s.code:
		return 0
	default:
		t.Errorf("%s: %s %q, exit code %v, signal %s, want %d", s.req.Idempotency, rec.Status, rec.Error, rec.ExitCode, rec.Signal, s.code)
		return 3
	}
}
