package capture

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestG18_OutputIsBounded(t *testing.T) {
	const limit, head = 10 << 20, 1 << 20
	places := map[string]string{"holes": t.TempDir()}
	if dir, ok := mount(t, "ramfs", ""); ok { // knows no holes
		places["segments"] = dir
	}
	for name, dir := range places {
		t.Run(name, func(t *testing.T) {
			guard(t)
			before := rss()
			l := open(t, Config{Dir: filepath.Join(dir, "log"), MaxOutput: limit})
			const n = 15_000_000 // 120 MB
			run(t, l, child("words", fmt.Sprint(n)))
			if grown := rss() - before; grown > 32<<20 {
				t.Errorf("resident size grew by %d MiB", grown>>20)
			}
			want := words(0, n)
			e := l.Stream(Stdout).Extent()
			if e.Total != int64(len(want)) || len(e.Omitted) != 1 || e.Omitted[0].From != head || e.Missing != "" {
				t.Fatalf("extent %+v, want a total of %d", e, len(want))
			}
			kept := e.Total - e.Lost()
			if kept > limit || kept < limit*3/4 {
				t.Errorf("%d bytes kept, limit %d", kept, limit)
			}
			if used := diskUse(t, filepath.Join(dir, "log")); used > limit+256<<10 {
				t.Errorf("%d bytes on disk, limit %d", used, limit)
			}
			checkKept(t, l.Stream(Stdout), want)
			l.Close()
			r, err := Reopen(filepath.Join(dir, "log"))
			if err != nil {
				t.Fatal(err)
			}
			if again := r.Stream(Stdout).Extent(); again.Total != e.Total || !sameRanges(again.Omitted, e.Omitted) || again.Missing != "" {
				t.Errorf("reopened: %+v, was %+v", again, e)
			}
			checkKept(t, r.Stream(Stdout), want)
		})
	}
}

// checkKept compares what is kept, and what is said to be omitted, with what
// was written.
func checkKept(t *testing.T, s *Stream, want []byte) {
	t.Helper()
	got, gaps := contents(t, s)
	if e := s.Extent(); !sameRanges(gaps, e.Omitted) {
		t.Errorf("gaps read %v, stated %v", gaps, e.Omitted)
	}
	var left []byte
	off := int64(0)
	for _, g := range gaps {
		left, off = append(left, want[off:g.From]...), g.To
	}
	if left = append(left, want[off:]...); !bytes.Equal(got, left) {
		t.Errorf("kept bytes differ: %d, want %d", len(got), len(left))
	}
}

func TestLimitsOfAllSizes(t *testing.T) {
	want := seqText(100_000)
	for _, limit := range []int64{1, 2, 100, 4096, 10_000, 65_536, 300_000, int64(len(want)), int64(len(want)) - 1} {
		for _, head := range []int64{0, 1, 5000} {
			guardless := fmt.Sprintf("%d/%d", limit, head)
			t.Run(guardless, func(t *testing.T) {
				guard(t)
				l := open(t, Config{MaxOutput: limit, Head: head})
				w := l.Feed(Stdout)
				for b := want; len(b) > 0; {
					n := min(len(b), 7001)
					w.Write(b[:n])
					b = b[n:]
				}
				l.settle()
				e := l.Stream(Stdout).Extent()
				if kept := e.Total - e.Lost(); kept > limit+blockSize || e.Total != int64(len(want)) {
					t.Errorf("%d kept, limit %d; total %d, want %d", kept, limit, e.Total, len(want))
				}
				checkKept(t, l.Stream(Stdout), want)
			})
		}
	}
}

// A reader that is overtaken is told, and never given zeros.
func TestG18_OvertakenReaderGetsNoZeros(t *testing.T) {
	guard(t)
	l := open(t, Config{MaxOutput: 1 << 20, Head: 4096})
	s := l.Stream(Stdout)
	cmd := begin(t, l, child("fill", "z", "200000000", ""))
	buf := make([]byte, 64<<10)
	gaps := 0
	for f := s.Follow(0); ; {
		n, err := f.Read(t.Context(), buf)
		if i := bytes.IndexByte(buf[:n], 0); i >= 0 {
			t.Fatalf("a zero at %d", f.Offset()-int64(n-i))
		}
		if _, ok := err.(*Omitted); ok {
			gaps++
		} else if err != nil {
			f.Close()
			break
		}
	}
	cmd.Wait()
	drain(l)
	t.Logf("%d gaps met", gaps)
}

// The bytes that are freed next are the ones to read if zeros are to be seen.
func TestG18_ReaderAtTheEdgeGetsNoZeros(t *testing.T) {
	guard(t)
	l := open(t, Config{MaxOutput: 256 << 10, Head: 4096})
	s := l.Stream(Stdout)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w, b := l.Feed(Stdout), bytes.Repeat([]byte("z"), 32<<10)
		for range 2000 {
			w.Write(b)
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		select {
		case <-done:
			return
		default:
		}
		e := s.Extent()
		if len(e.Omitted) == 0 {
			continue
		}
		n, err := s.ReadAt(buf, e.Omitted[0].To)
		if i := bytes.IndexByte(buf[:n], 0); i >= 0 {
			t.Fatalf("a zero at %d, %v, %v", e.Omitted[0].To+int64(i), err, s.Extent())
		}
	}
}

func TestS1_16_StoppedReaderSlowsNobody(t *testing.T) {
	guard(t)
	l := open(t, Config{MaxOutput: 8 << 20})
	s := l.Stream(Stdout)
	f := s.Follow(0)
	defer f.Close()
	run(t, l, child("fill", "x", "200000000", "")) // ends although nobody reads
	if total := s.Extent().Total; total != 200000000 {
		t.Errorf("%d bytes", total)
	}
}

func TestWindowHoldsTheCommandBack(t *testing.T) {
	guard(t)
	const window = 100_000
	l := open(t, Config{Window: window})
	s := l.Stream(Stdout)
	f := s.Follow(0)
	want := seqText(200_000)
	cmd := begin(t, l, child("seq", "200000"))
	var got []byte
	buf := make([]byte, 30_000)
	for {
		n, err := f.Read(t.Context(), buf)
		got = append(got, buf[:n]...)
		if ahead := s.Extent().Total - int64(len(got)); ahead > window {
			t.Fatalf("%d bytes ahead, window %d", ahead, window)
		}
		if err != nil {
			break
		}
	}
	f.Close()
	cmd.Wait()
	if !drain(l) || !bytes.Equal(got, want) {
		t.Errorf("%d bytes read, want %d", len(got), len(want))
	}
}

// A follower that stops keeps the end of the run waiting, for what is in the
// pipe would be lost to it, but no longer than the context lasts.
func TestWindowEndsWithTheContext(t *testing.T) {
	guard(t)
	l := open(t, Config{Window: 1000})
	f := l.Stream(Stdout).Follow(0)
	defer f.Close()
	w := pipe(t, l, Stdout)
	w.Write(make([]byte, 50_000))
	w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	drained := make(chan bool)
	go func() { drained <- l.Drain(ctx, time.Millisecond, 10*time.Millisecond) }()
	select {
	case <-drained:
		t.Error("the follower was not waited for")
	case <-time.After(200 * time.Millisecond): // longer than it takes not to wait
		cancel()
		<-drained
	}
	if total := l.Stream(Stdout).Extent().Total; total != 50_000 {
		t.Errorf("%d bytes in the spool", total)
	}
}

// What is still in the pipe when the command has ended reaches a follower that is
// slow, although the limit keeps less than that.
func TestWindowHoldsDuringDrain(t *testing.T) {
	guard(t)
	l := open(t, Config{MaxOutput: 16 << 10, Head: 4 << 10, Window: 8 << 10})
	f := l.Stream(Stdout).Follow(0)
	w := pipe(t, l, Stdout)
	if _, err := w.Write(make([]byte, 60_000)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	drained := make(chan bool)
	go func() { drained <- l.Drain(t.Context(), time.Millisecond, 2*time.Millisecond) }()
	got, buf := 0, make([]byte, 1000)
	for {
		time.Sleep(time.Millisecond) // slower than the drain has patience
		n, err := f.Read(t.Context(), buf)
		got += n
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
	}
	f.Close()
	if complete := <-drained; !complete || got != 60_000 {
		t.Errorf("%d bytes of 60000, complete %v", got, complete)
	}
}

func TestRefuse(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	cmd := begin(t, l, child("fill", "x", "1000000000", ""))
	await(t, l.Stream(Stdout), 1)
	l.Refuse(Stdout)
	cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGPIPE {
		t.Errorf("the command ended by %v, want SIGPIPE", cmd.ProcessState)
	}
}

func TestS1_18_EveryLine(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	run(t, l, child("seq", "1000000"))
	if b, _ := contents(t, l.Stream(Stdout)); bytes.Count(b, []byte("\n")) != 1_000_000 {
		t.Errorf("%d lines", bytes.Count(b, []byte("\n")))
	}
}
