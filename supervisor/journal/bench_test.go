package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func percentiles(b *testing.B, all []time.Duration) {
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1e3, "p99-µs")
}

// One caller that waits for each: submit to commit.
func BenchmarkCommitAlone(b *testing.B) {
	for name, opt := range map[string]Options{"normal": {}, "full": {Full: true}} {
		b.Run(name, func(b *testing.B) {
			j, err := Open(b.TempDir(), opt)
			must(b, err)
			defer j.Close()
			all := make([]time.Duration, 0, b.N)
			b.ReportAllocs()
			for seq := int64(1); b.Loop(); seq++ {
				s := admitted(seq, id(int(seq/2)))
				if seq%2 == 1 {
					s = ended(seq, s.id)
				}
				batch := s.batch()
				start := time.Now()
				must(b, j.Submit(batch).Wait())
				all = append(all, time.Since(start))
			}
			percentiles(b, all)
		})
	}
}

// Sixteen callers that wait for each.
func BenchmarkCommit16(b *testing.B) { submitters(b, 0) }

// The same with four that each read a list a thousand times a second.
func BenchmarkCommit16Readers(b *testing.B) { submitters(b, 4) }

func submitters(b *testing.B, readers int) {
	j, err := Open(b.TempDir(), Options{})
	must(b, err)
	defer j.Close()
	batches := make([]Batch, b.N)
	for i := range batches {
		s := admitted(int64(i+1), id(i/2))
		if i%2 == 1 {
			s = ended(int64(i+1), s.id)
		}
		batches[i] = s.batch()
	}
	var stop atomic.Bool
	var wg, rd sync.WaitGroup
	for range readers {
		rd.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if stop.Load() {
					return
				}
				if _, _, err := j.List(Filter{Limit: 50}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	var mu sync.Mutex
	next := 0
	all := make([]time.Duration, b.N)
	b.ResetTimer()
	b.ReportAllocs()
	for range 16 {
		wg.Go(func() {
			for {
				mu.Lock()
				if next == len(batches) {
					mu.Unlock()
					return
				}
				n := next
				next++
				start := time.Now()
				c := j.Submit(batches[n])
				mu.Unlock()
				if err := c.Wait(); err != nil {
					b.Error(err)
				}
				all[n] = time.Since(start)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	stop.Store(true)
	rd.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
	percentiles(b, all)
}

// big is a journal with 100,000 finished runs and 100 live ones.
var big = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("procsup-journal-bench-%d", schemaVersion))
	if j, err := Open(dir, Options{}); err == nil {
		if j.Close(); j.LastSeq() == 200_100 {
			return dir, nil
		}
	}
	os.RemoveAll(dir)
	j, err := Open(dir, Options{})
	if err != nil {
		return dir, err
	}
	var last *Commit
	for i := range 100_100 {
		s := admitted(j.submitted+1, id(i))
		s.session, s.pad = fmt.Sprint(i%50), 1000
		last = j.Submit(s.batch())
		if i < 100_000 {
			e := ended(j.submitted+1, id(i))
			e.session = s.session
			last = j.Submit(e.batch())
		}
		if i%500 == 0 {
			last.Wait()
		}
	}
	err = last.Wait()
	return dir, firstError(err, j.Close())
})

func BenchmarkBig(b *testing.B) {
	dir, err := big()
	must(b, err)
	b.Run("Open", func(b *testing.B) {
		for b.Loop() {
			j, err := Open(dir, Options{})
			must(b, err)
			b.StopTimer()
			must(b, j.Close())
			b.StartTimer()
		}
	})
	j := openIn(b, dir)
	for name, read := range map[string]func() error{
		"Unfinished":  func() error { _, err := j.Unfinished(); return err },
		"List50":      func() error { _, _, err := j.List(Filter{Limit: 50}); return err },
		"ListSession": func() error { _, _, err := j.List(Filter{Limit: 50, Session: "7"}); return err },
		"ListMine":    func() error { _, _, err := j.List(Filter{Limit: 50, Session: "7", LiveOnly: true}); return err },
		"Run":         func() error { _, err := j.Run(id(5000)); return err },
		"Resolve":     func() error { _, err := j.Resolve(id(5000)[:29]+"8", ""); return err },
		"EntriesOf":   func() error { _, err := j.Entries(0, id(5000), 0); return err },
	} {
		b.Run(name, func(b *testing.B) {
			must(b, read())
			for b.Loop() {
				read()
			}
		})
	}
	b.Run("Check", func(b *testing.B) {
		for b.Loop() {
			sound(b, j)
		}
	})
}
