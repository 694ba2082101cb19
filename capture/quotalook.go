package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	lookBatch = 64   // folders that are looked at between two rests
	lookRest  = 3    // as many times as that took Measure rests
	lookMost  = 1024 // logs that one look finds
)

// Measure counts what earlier processes have left, at leisure: it takes at most a
// quarter of one processor. To be called once, with all of their logs that are
// taken up again open, and before any Remove. The error names the folder; what was
// not seen then does not count.
func (q *Quota) Measure(ctx context.Context) error {
	err := EachLog(ctx, q.base, lookRest, func(dir string) {
		kept, at := keptIn(dir)
		if kept == 0 || !at.Before(q.began) {
			return
		}
		q.mu.Lock()
		_, ours := q.logs[dir]
		q.mu.Unlock()
		if !ours {
			q.used.Add(kept)
		}
	})
	q.mu.Lock()
	q.evicting = false
	q.mu.Unlock()
	q.check()
	return err
}

// look finds the logs that ended longest ago and keep something, oldest first.
func (q *Quota) look() []endedLog {
	var found []endedLog
	oldest := func() {
		slices.SortFunc(found, func(a, b endedLog) int { return a.at.Compare(b.at) })
		found = found[:min(len(found), lookMost)]
	}
	_ = EachLog(context.Background(), q.base, 0, func(dir string) {
		kept, at := keptIn(dir)
		if kept == 0 {
			return
		}
		q.mu.Lock()
		running := q.logs[dir].running
		q.mu.Unlock()
		if running {
			return
		}
		if found = append(found, endedLog{dir, at}); len(found) == 2*lookMost {
			oldest()
		}
	})
	oldest()
	return found
}

// EachLog calls visit with the path of all that is in the folder base, in any
// order, until ctx is done, and rests so many times as long as that takes. There
// may be a great many: they are read in parts. A base that is not there is empty.
func EachLog(ctx context.Context, base string, rest time.Duration, visit func(dir string)) error {
	all, err := os.Open(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for logs: %w", err)
	}
	defer all.Close()
	for {
		began := time.Now()
		names, err := all.Readdirnames(lookBatch)
		for _, name := range names {
			visit(filepath.Join(base, name))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for logs: %w", err)
		}
		select {
		case <-time.After(rest * time.Since(began)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// keptIn is what a log's folder keeps in bytes, holes not counted, and when it was
// written to last.
func keptIn(dir string) (kept int64, at time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, at
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if info.ModTime().After(at) {
			at = info.ModTime()
		}
		if name, _, _ := strings.Cut(e.Name(), "."); name == Stdout.String() || name == Stderr.String() {
			kept += onDisk(info)
		}
	}
	return kept, at
}
