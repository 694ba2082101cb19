package capture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pipeSize(t *testing.T, f *os.File) int {
	t.Helper()
	n, err := unix.FcntlInt(f.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Busy pipes get more room, as far as the budget goes, and give it back.
func TestPipesGrowWithinTheBudget(t *testing.T) {
	guard(t)
	grow := NewGrow(2)
	var ws []*os.File
	var ls []*Log
	for range 4 {
		l := open(t, Config{Grown: grow})
		ls, ws = append(ls, l), append(ws, pipe(t, l, Stdout))
	}
	block := make([]byte, pipeSmall)
	for range 200 {
		for _, w := range ws {
			w.Write(block)
		}
	}
	large := 0
	for _, w := range ws {
		switch n := pipeSize(t, w); n {
		case pipeLarge:
			large++
		case pipeSmall:
		default:
			t.Errorf("a pipe of %d bytes", n)
		}
	}
	if large != 2 {
		t.Errorf("%d large pipes, budget 2", large)
	}
	for begin := time.Now(); grow.left.Load() != 2; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 10*idleClose {
			t.Fatalf("budget %d after %v of rest", grow.left.Load(), time.Since(begin))
		}
	}
	for _, w := range ws {
		if n := pipeSize(t, w); n != pipeSmall {
			t.Errorf("a quiet pipe of %d bytes", n)
		}
	}
	for _, l := range ls {
		if total := l.Stream(Stdout).Extent().Total; total != 200*pipeSmall {
			t.Errorf("%d bytes", total)
		}
	}
}

// More streams than may sleep on threads of their own.
func TestManyBusyStreams(t *testing.T) {
	guard(t)
	const n = 12
	want := words(0, 100_000)
	var ls []*Log
	for range n {
		l := open(t, Config{})
		begin(t, l, child("words", "100000"))
		ls = append(ls, l)
	}
	for i, l := range ls {
		if !l.Drain(t.Context(), time.Minute, time.Minute) {
			t.Error("not complete")
		}
		if got, _ := contents(t, l.Stream(Stdout)); !bytes.Equal(got, want) {
			t.Errorf("stream %d: %d bytes, want %d", i, len(got), len(want))
		}
	}
}

// What is not a pipe is read, not spliced.
func TestAttachOtherThanPipes(t *testing.T) {
	guard(t)
	want := seqText(50_000)
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")
	l := open(t, Config{})
	if err := errors.Join(l.Attach(Stdout, file), l.Attach(Stderr, near)); err != nil {
		t.Fatal(err)
	}
	far.Write(want)
	far.Close()
	if !l.Drain(t.Context(), time.Minute, time.Minute) {
		t.Error("not complete")
	}
	for _, src := range []Source{Stdout, Stderr} {
		if got, _ := contents(t, l.Stream(src)); !bytes.Equal(got, want) {
			t.Errorf("%v: %d bytes, want %d", src, len(got), len(want))
		}
	}
}

// Two pipes may feed one stream, as after a hand-over; it ends with the last.
func TestTwoPipesOneStream(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	a, b := pipe(t, l, Stdout), pipe(t, l, Stdout)
	s := l.Stream(Stdout)
	a.WriteString("a")
	await(t, s, 1)
	a.Close()
	b.WriteString("b")
	await(t, s, 2)
	if s.Ended() {
		t.Error("ended with a pipe open")
	}
	b.Close()
	for bell := s.Bell(); !s.Ended(); bell = s.Bell() {
		<-bell // hangs when it goes on without a pipe
	}
}

func TestMergedOutput(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	cmd := child("err", "out", "err", "0")
	w := pipe(t, l, Stdout)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := l.Match(t.Context(), Query{Pattern: "never", Sources: []Source{Stderr}}); !errors.Is(err, ErrEndedBeforeMatch) {
		t.Errorf("match on a stream that is not in use: %v", err)
	}
	drain(l)
	if b, _ := contents(t, l.Stream(Stdout)); string(b) != "outerr" {
		t.Errorf("stdout %q", b)
	}
	j, err := json.Marshal(l.Paths())
	var paths map[Source]string
	if err != nil || json.Unmarshal(j, &paths) != nil || len(paths) != 1 || paths[Stdout] != l.Path(Stdout) {
		t.Errorf("paths %s, %v", j, err)
	}
}

// A spool that is deleted while nobody writes or reads.
func TestA25_DeletedWhileQuiet(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	w := l.Feed(Stdout)
	w.Write([]byte("before"))
	l.Stream(Stdout).wmu.Lock()
	l.Stream(Stdout).rest()
	l.Stream(Stdout).wmu.Unlock()
	os.Remove(l.Path(Stdout))
	_, err := l.Stream(Stdout).ReadAt(make([]byte, 10), 2)
	var gap *Omitted
	if !errors.As(err, &gap) || gap.From != 2 || gap.To != 6 {
		t.Errorf("read: %v", err)
	}
	w.Write([]byte("after"))
	if e := l.Stream(Stdout).Extent(); e.Total != 11 || e.Lost() != 6 || e.Missing != "spool deleted" {
		t.Errorf("extent %+v", e)
	}
	if v, err := l.HeadTail(Stdout, 100); err != nil || v.Text != "[… 6 bytes omitted …]\nafter" {
		t.Errorf("view %+v, %v", v, err)
	}
	if f, err := l.Match(t.Context(), Query{Pattern: "after"}); err != nil || f.From != 6 {
		t.Errorf("found %+v, %v", f, err)
	}
}

// Without its index a spool is still read, and its holes are not taken for zeros.
func TestLostIndex(t *testing.T) {
	guard(t)
	dir := filepath.Join(t.TempDir(), "log")
	l, err := Open(Config{Dir: dir, MaxOutput: 1 << 20, Head: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	l.Feed(Stdout).Write(words(0, 500_000))
	l.Close()
	want := l.Stream(Stdout).Extent()
	os.Remove(filepath.Join(dir, "index"))
	r, err := Reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := r.Stream(Stdout).Extent()
	if got.Total != want.Total || !sameRanges(got.Omitted, want.Omitted) || got.Missing != "no record" {
		t.Errorf("extent %+v, was %+v", got, want)
	}
	checkKept(t, r.Stream(Stdout), words(0, 500_000))
}

// A match does not span bytes that are missing.
func TestMatchPassesOverGaps(t *testing.T) {
	guard(t)
	l := open(t, Config{MaxOutput: 64 << 10, Head: 4})
	w := l.Feed(Stdout)
	w.Write([]byte("abEN"))
	w.Write(bytes.Repeat([]byte("x"), 1<<20))
	w.Write([]byte("D END"))
	for _, q := range []Query{{Pattern: "END"}, {Pattern: "E[N]D", Regex: true}} {
		if f, err := l.Match(t.Context(), q); err != nil || f.From != 4+1<<20+2 {
			t.Errorf("%+v: %+v, %v", q, f, err)
		}
	}
}

// A pattern of many states does not grow the matcher.
func TestMatcherStaysSmall(t *testing.T) {
	e, err := newRegex("[ab]*a[ab]{12}c")
	if err != nil {
		t.Fatal(err)
	}
	r := e.(*regex)
	text := make([]byte, 1<<17)
	for i, x := range words(0, len(text)/8) {
		text[i] = 'a' + (x^byte(i>>3))*37>>3&1
	}
	text = append(text, strings.Repeat("éüß", 100)...)
	text = append(text, "abbbbbbbbbbbbc"...)
	if i, j, _, ok := r.scan(text, 0, true); !ok || string(text[j-14:j]) != "abbbbbbbbbbbbc" || i > len(text)-14 {
		t.Errorf("%d, %d, %v", i, j, ok)
	}
	if len(r.states) > maxStates {
		t.Errorf("%d states", len(r.states))
	}
}

func TestLongLinesAreNotHeldBack(t *testing.T) {
	var v Lines
	long := strings.Repeat("x", lineMax+10)
	got := v.Append(nil, []byte(long))
	if len(got) == 0 {
		t.Error("all of a long line is held back")
	}
	got = v.Append(got, []byte("tail\rshort\n"))
	if want := long + "tail\nshort\n"; string(got) != want || v.Collapsed != 0 {
		t.Errorf("%d bytes, want %d; %d collapsed", len(got), len(want), v.Collapsed)
	}
}

func TestErrorsName(t *testing.T) {
	if got := (&Omitted{Range{3, 9}}).Error(); got != "bytes 3 to 9 are omitted" {
		t.Error(got)
	}
	if got := fmt.Sprint(Stdout, Stderr, loss(200)); got != "stdout stderr no record" {
		t.Error(got)
	}
	if err := new(Source).UnmarshalText([]byte("stdin")); err == nil {
		t.Error("stdin is a source")
	}
}
