package capture

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestOpenSaysWhatIsWrongWithThePlace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "old")
	l, err := Open(Config{Dir: old})
	if err != nil {
		t.Fatal(err)
	}
	w, err := l.Pipe(Stdout) // what holds no output yet is no log
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	l.Close()
	half := filepath.Join(dir, "half")
	os.Mkdir(half, 0o700)
	os.WriteFile(filepath.Join(half, "stderr"), nil, 0o600)
	for name, c := range map[string]struct {
		dir    string
		exists bool
	}{
		"a file":      {file, false},
		"in a file":   {filepath.Join(file, "log"), false},
		"an old log":  {old, true},
		"old output":  {half, true},
		"no such dir": {"/proc/self/nothing/log", false},
	} {
		_, err := Open(Config{Dir: c.dir})
		if err == nil || errors.Is(err, ErrExists) != c.exists || !strings.Contains(err.Error(), c.dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l, err := Open(Config{Dir: old, Resume: true}); err != nil {
		t.Errorf("resume: %v", err)
	} else {
		l.Close()
	}
}

func TestRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rs ranges
		var set [100]bool
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			from := rapid.Int64Range(0, 99).Draw(t, "from")
			to := rapid.Int64Range(0, 100).Draw(t, "to")
			rs = rs.add(Range{from, to})
			for i := from; i < to; i++ {
				set[i] = true
			}
		}
		n := int64(0)
		for i, in := range set {
			if _, got := rs.at(int64(i)); got != in {
				t.Fatalf("%v at %d: %v", rs, i, got)
			}
			if in {
				n++
			}
		}
		if rs.sum() != n {
			t.Fatalf("sum %d, want %d", rs.sum(), n)
		}
		for i := 1; i < len(rs); i++ {
			if rs[i].From <= rs[i-1].To {
				t.Fatalf("not normal: %v", rs)
			}
		}
	})
}

func TestRangesAreBounded(t *testing.T) {
	var rs ranges
	for i := range int64(10 * maxRanges) {
		rs = rs.add(Range{i * 10, i*10 + 5})
	}
	if len(rs) > maxRanges {
		t.Errorf("%d ranges", len(rs))
	}
	for i := range int64(10 * maxRanges) {
		if _, in := rs.at(i * 10); !in {
			t.Fatalf("%d was forgotten", i*10)
		}
	}
}

func TestDrainWaits(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		every, end, cancel time.Duration // a byte each, end of file, end of the context; 0 = never
		want               time.Duration
	}{
		"quiet holder":   {want: 50 * ms},
		"noisy holder":   {every: 20 * ms, want: 2000 * ms}, // G5
		"end of file":    {every: 20 * ms, end: 130 * ms, want: 130 * ms},
		"caller gave up": {every: 20 * ms, cancel: 77 * ms, want: 77 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				done, stop := make(chan struct{}), make(chan struct{})
				var last time.Time
				begin := time.Now()
				after := func(d time.Duration, f func()) {
					if d > 0 {
						time.AfterFunc(d, f)
					}
				}
				after(c.end, func() { close(done) })
				after(c.cancel, cancel)
				lastByte := func() time.Time {
					if c.every > 0 {
						last = begin.Add(time.Since(begin) / c.every * c.every)
					}
					return last
				}
				awaitQuiet(ctx, done, func() bool { return false }, lastByte, 50*ms, 2*time.Second)
				if took := time.Since(begin); took != c.want {
					t.Errorf("took %v, want %v", took, c.want)
				}
				cancel()
				close(stop)
			})
		})
	}
}

func TestIndexTellsWhen(t *testing.T) {
	l, err := Open(Config{Dir: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before, mono := time.Now().Add(-time.Second), monotonic()
	l.Feed(Stdout).Write([]byte("one"))
	l.Feed(Stderr).Write([]byte("two2"))
	l.Feed(Stdout).Write([]byte("three"))
	recs, err := l.Records()
	if err != nil {
		t.Fatal(err)
	}
	type where struct {
		Source
		Off, Len int64
	}
	var got []where
	for _, r := range recs {
		got = append(got, where{r.Source, r.Off, r.Len})
		if r.Wall.Before(before) || r.Wall.After(time.Now()) || r.Mono < mono || r.Mono > monotonic() {
			t.Errorf("record at %v, %v", r.Wall, r.Mono)
		}
	}
	if want := []where{{Stdout, 0, 3}, {Stderr, 0, 4}, {Stdout, 3, 5}}; !slices.Equal(got, want) {
		t.Errorf("records %v, want %v", got, want)
	}
}

func TestTornIndex(t *testing.T) {
	for name, harm := range map[string]func(b []byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)-7] },
		"zeros":   func(b []byte) []byte { return append(b, make([]byte, 3*recordSize)...) },
		"garbage": func(b []byte) []byte { copy(b[headerSize+recordSize:], "garbage"); return b },
		"flipped": func(b []byte) []byte { b[headerSize+recordSize+16]++; return b },
		"empty":   func(b []byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "log")
			l, err := Open(Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				l.Feed(Stdout).Write([]byte("out"))
				l.Feed(Stderr).Write([]byte("err"))
			}
			l.Close()
			path := filepath.Join(dir, "index")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, harm(b), 0o600); err != nil {
				t.Fatal(err)
			}
			if l, err = Open(Config{Dir: dir, Resume: true}); err != nil {
				t.Fatal(err)
			}
			l.Feed(Stdout).Write([]byte("more"))
			l.Close()
			r, err := Reopen(dir)
			if err != nil {
				t.Fatal(err)
			}
			if v, err := r.HeadTail(Stdout, 100); err != nil || v.Text != "outoutoutmore" {
				t.Errorf("%+v, %v", v, err)
			}
			recs, err := r.Records()
			if err != nil || len(recs) == 0 || recs[len(recs)-1].End() != 13 {
				t.Errorf("records %v, %v", recs, err)
			}
			for _, r := range recs {
				if r.Source == Stderr && r.Len != 3 {
					t.Errorf("a damaged record was believed: %+v", r)
				}
			}
		})
	}
}

func TestThinnedIndex(t *testing.T) {
	rec := func(src Source, off, n int64) Record {
		return Record{Source: src, Off: off, Len: n, Mono: time.Duration(off)}
	}
	gap := func(src Source, off, n int64) Record {
		r := rec(src, off, n)
		r.Omitted = true
		return r
	}
	got := thinned([]Record{
		rec(Stdout, 0, 10), rec(Stdout, 10, 10), rec(Stderr, 0, 5), rec(Stdout, 20, 10), gap(Stdout, 10, 10),
		rec(Stdout, 30, 5), gap(Stdout, 10, 20), rec(Stdout, 35, 5), rec(Stdout, 40, 5),
	})
	g := gap(Stdout, 10, 20)
	want := []Record{g, rec(Stdout, 0, 10), rec(Stderr, 0, 5), rec(Stdout, 30, 10), rec(Stdout, 40, 5)}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Record{})); d != "" {
		t.Error(d)
	}
}

func TestIndexStaysSmall(t *testing.T) {
	x, err := openIndex(Config{Dir: t.TempDir()}, time.Now(), false)
	if err != nil {
		t.Fatal(err)
	}
	x.gaps = func() []Record { return nil }
	for i := range int64(500_000) {
		if now := i * 2 * indexGrain; x.add(Stdout, i*10, 10, now) {
			x.write(now)
		}
	}
	x.close()
	fi, err := os.Stat(x.path)
	if err != nil || fi.Size() > indexMax+indexBatch*recordSize {
		t.Errorf("%d bytes, %v", fi.Size(), err)
	}
	recs, _, _ := readIndex(x.path)
	end := int64(0)
	for _, r := range recs {
		if r.Off != end {
			t.Fatalf("record at %d, want %d", r.Off, end)
		}
		end = r.End()
	}
	if end != 5_000_000 {
		t.Errorf("ends at %d", end)
	}
}

// An index that is deleted with its spool comes back and knows the gaps.
func TestDeletedIndex(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l, err := Open(Config{Dir: dir, MaxOutput: 1 << 20, Head: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := l.Feed(Stdout)
	w.Write(make([]byte, 3<<20)) // the index is open from here on
	os.Remove(filepath.Join(dir, "index"))
	w.Write([]byte("more"))
	if _, err := l.Records(); err != nil {
		t.Fatal(err)
	}
	r, err := Reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, want := r.Stream(Stdout).Extent(), l.Stream(Stdout).Extent()
	if d := cmp.Diff(want, got); d != "" || len(want.Omitted) == 0 {
		t.Error(d)
	}
}

func TestAnonymousLog(t *testing.T) {
	l, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := l.Stream(Stdout).Follow(0)
	l.Feed(Stdout).Write([]byte("here"))
	l.Close()
	buf := make([]byte, 10)
	if n, err := f.Read(t.Context(), buf); string(buf[:n]) != "here" {
		t.Errorf("open reader got %q, %v", buf[:n], err)
	}
	f.Close()
	if _, err := l.Stream(Stdout).ReadAt(buf, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if len(l.Paths()) != 0 || l.Path(Stdout) != "" {
		t.Errorf("paths %v", l.Paths())
	}
}

func TestClosedLog(t *testing.T) {
	l, err := Open(Config{Dir: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	w := l.Feed(Stdout)
	w.Write([]byte("x"))
	f := l.Stream(Stderr).Follow(0)
	defer f.Close()
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if _, err := w.Write([]byte("y")); !errors.Is(err, ErrClosed) {
		t.Errorf("write: %v", err)
	}
	if _, err := l.Pipe(Stdout); !errors.Is(err, ErrClosed) {
		t.Errorf("pipe: %v", err)
	}
	if _, err := f.Read(t.Context(), make([]byte, 1)); err == nil {
		t.Error("a reader of a closed log waits")
	}
}
