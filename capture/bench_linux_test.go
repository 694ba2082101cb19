package capture

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// writeOut is the helper of the benchmarks: it writes n bytes as a program does
// that prints lines through stdio, lines one by one, or blocks.
func writeOut(kind string, n int) int {
	size := map[string]int{"lines": 4080, "line1": 80, "blocks": 65536}[kind]
	b := make([]byte, size)
	for i := range b {
		b[i] = 'a' + byte(i%23)
		if i%80 == 79 || i == size-1 {
			b[i] = '\n'
		}
	}
	for ; n > 0; n -= size {
		if _, err := syscall.Write(1, b[:min(n, size)]); err != nil {
			return 1
		}
	}
	return 0
}

// benchDir is on tmpfs when there is one, so that the disk is not measured.
func benchDir(b *testing.B) string {
	dir, err := os.MkdirTemp("/dev/shm", "capture-")
	if err != nil {
		return b.TempDir()
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// BenchmarkCapture compares a child's output captured with the same output
// redirected to a file ("direct"), and captured while a literal is looked for
// ("match"). cpu-s/GiB is this process alone.
func BenchmarkCapture(b *testing.B) {
	for _, kind := range []string{"lines", "line1", "blocks"} {
		n := 512 << 20
		if kind == "line1" {
			n /= 8
		}
		for _, mode := range []string{"direct", "capture", "match"} {
			b.Run(kind+"/"+mode, func(b *testing.B) {
				dir := benchDir(b)
				b.SetBytes(int64(n))
				before := cpu()
				rounds := 0
				for b.Loop() {
					rounds++
					captureOnce(b, filepath.Join(dir, fmt.Sprint(rounds)), kind, mode, n)
				}
				b.ReportMetric((cpu()-before).Seconds()/float64(rounds)/(float64(n)/(1<<30)), "cpu-s/GiB")
			})
		}
	}
}

func cpu() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func captureOnce(b *testing.B, dir, kind, mode string, n int) {
	defer os.RemoveAll(dir)
	cmd := child("writer", kind, fmt.Sprint(n))
	if mode == "direct" {
		f, err := os.Create(dir)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		cmd.Stdout = f
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		return
	}
	l, err := Open(Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	w, err := l.Pipe(Stdout)
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	w.Close()
	if mode == "match" {
		if _, err := l.Match(bg, Query{Pattern: "no such text"}); err != ErrEndedBeforeMatch {
			b.Error(err)
		}
	}
	cmd.Wait()
	if !l.Drain(bg, time.Minute, time.Minute) || l.Stream(Stdout).Extent().Total != int64(n) {
		b.Errorf("extent %+v", l.Stream(Stdout).Extent())
	}
}

// BenchmarkWake is the time from a write to the return of the waiter.
func BenchmarkWake(b *testing.B) {
	l, err := Open(Config{Dir: filepath.Join(benchDir(b), "log")})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	w, err := l.Pipe(Stdout)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	at, took, rounds := int64(0), time.Duration(0), 0
	for b.Loop() {
		got := make(chan error)
		go func() {
			_, err := l.Match(bg, Query{Pattern: "ready", From: map[Source]int64{Stdout: at}, Sources: []Source{Stdout}})
			got <- err
		}()
		for !l.streams[0].eager.Load() { // it waits
			time.Sleep(10 * time.Microsecond)
		}
		begin := time.Now()
		n, _ := w.WriteString("ready\n")
		if err := <-got; err != nil {
			b.Fatal(err)
		}
		took += time.Since(begin)
		rounds++
		at += int64(n)
	}
	b.ReportMetric(float64(took.Microseconds())/float64(rounds), "us/wake")
}

// BenchmarkOpen is what a log costs a command that writes one line.
func BenchmarkOpen(b *testing.B) {
	dir := benchDir(b)
	i := 0
	for b.Loop() {
		i++
		l, err := Open(Config{Dir: filepath.Join(dir, fmt.Sprint(i))})
		if err != nil {
			b.Fatal(err)
		}
		w, err := l.Pipe(Stdout)
		if err != nil {
			b.Fatal(err)
		}
		w.WriteString("line\n")
		w.Close()
		if !l.Drain(bg, time.Minute, time.Minute) {
			b.Fatal("not complete")
		}
		l.Close()
	}
}

// BenchmarkScan is how fast the engines look through text.
func BenchmarkScan(b *testing.B) {
	text := make([]byte, 0, 1<<20)
	for i := 0; len(text) < 1<<20; i++ {
		text = fmt.Appendf(text, "2026-11-30T12:00:%02d INFO request %d served in %dms\n", i%60, i, i%97)
	}
	for name, q := range map[string]Query{
		"literal":    {Pattern: "no such text"},
		"prefix":     {Pattern: `listening on .*:\d+`, Regex: true},
		"expression": {Pattern: `[Ll]istening (on|at) port`, Regex: true},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				e, err := newEngine(q)
				if err != nil {
					b.Fatal(err)
				}
				if _, _, _, ok := e.scan(text, 0, true); ok {
					b.Fatal("found")
				}
			}
		})
	}
	b.Run("strip", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		coloured := []byte(fmt.Sprintf("\x1b[32m%s\x1b[0m\r\n", text))
		dst := make([]byte, 0, len(coloured))
		for b.Loop() {
			var v Strip
			dst = v.Append(dst[:0], coloured)
		}
	})
}
