package capture

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// harms are what can be done to a spool behind the back of its writer, and
// what the stream then says.
var harms = map[string]struct {
	do  func(t *testing.T, path string)
	why string
}{
	"file":      {func(t *testing.T, path string) { os.Remove(path) }, "spool deleted"},
	"folder":    {func(t *testing.T, path string) { os.RemoveAll(filepath.Dir(path)) }, "spool deleted"},
	"moved":     {func(t *testing.T, path string) { os.Rename(path, path+".old") }, "spool moved or replaced"},
	"truncated": {func(t *testing.T, path string) { os.Truncate(path, 10) }, "spool truncated"},
	"replaced": {func(t *testing.T, path string) {
		os.WriteFile(path+".x", []byte("foreign"), 0o600)
		os.Rename(path+".x", path)
	}, "spool deleted"},
	"blocked": {func(t *testing.T, path string) {
		dir := filepath.Dir(path)
		for try := 0; os.WriteFile(dir, nil, 0o600) != nil; try++ { // the pump may be making it anew
			if os.RemoveAll(dir); try > 1000 {
				t.Fatal("cannot take the folder's place")
			}
		}
	}, "spool deleted"},
}

func TestA25_SpoolDeletedWhileTheJobWrites(t *testing.T) {
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			guard(t)
			l := open(t, Config{})
			s := l.Stream(Stdout)
			written := writeThrough(t, l, func() { harm.do(t, l.Path(Stdout)) })
			if f, err := l.Match(t.Context(), Query{Pattern: "END"}); err != nil || f.From != written-3 {
				t.Errorf("match %v, %v, want it at %d", f, err, written-3)
			}
			e := s.Extent()
			if e.Total != written || e.Missing != harm.why {
				t.Errorf("extent %v, want a total of %d, %s", e, written, harm.why)
			}
			got, gaps := contents(t, s)
			if name != "blocked" && len(gaps) == 0 {
				t.Error("no gap stated")
			}
			if bytes.IndexByte(got, 0) >= 0 || bytes.Contains(got, []byte("foreign")) {
				t.Error("bytes that the command did not write")
			}
			l.Close()
			dir := filepath.Dir(l.Path(Stdout))
			if name == "blocked" {
				os.Remove(dir)
				return
			}
			r, err := Reopen(dir)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(e.Omitted, r.Stream(Stdout).Extent().Omitted); d != "" || r.Stream(Stdout).Extent().Missing == "" {
				t.Errorf("reopened: %s", d)
			}
		})
	}
}

// writeThrough writes to stdout for a while, does harm after some of it, ends
// with END and returns how many bytes it wrote. No write is held up.
func writeThrough(t *testing.T, l *Log, harm func()) (written int64) {
	t.Helper()
	w := pipe(t, l, Stdout)
	write := func(text string) {
		n, err := w.WriteString(text)
		written += int64(n)
		if err != nil {
			t.Fatal(err)
		}
		await(t, l.Stream(Stdout), written)
	}
	line := strings.Repeat("y", 20000) + "\n"
	for range 100 {
		write(line)
	}
	harm()
	for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; {
		write(line)
	}
	write("END")
	w.Close()
	if !l.Drain(t.Context(), time.Minute, time.Minute) {
		t.Error("not complete")
	}
	return written
}

// A reader that is a little behind when the spool is deleted reads on.
func TestA25_ReaderThatKeepsUpMissesNothing(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	s := l.Stream(Stdout)
	w := pipe(t, l, Stdout)
	f := s.Follow(0)
	defer f.Close()
	written, buf := int64(0), make([]byte, 1000)
	var got []byte
	for i, begin := 0, time.Now(); i < 100 || time.Since(begin) < 300*time.Millisecond; i++ {
		line := fmt.Sprintf("%0999d\n", i)
		w.WriteString(line)
		written += int64(len(line))
		await(t, s, written)
		if i == 50 {
			os.RemoveAll(filepath.Dir(l.Path(Stdout)))
		}
		for int64(len(got)) < written-50_000 { // 50 lines behind
			n, err := f.Read(t.Context(), buf)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, buf[:n]...)
		}
	}
	for i := 0; i < len(got)/1000; i++ {
		if want := fmt.Sprintf("%0999d\n", i); string(got[i*1000:(i+1)*1000]) != want {
			t.Fatalf("line %d is %.20q", i, got[i*1000:])
		}
	}
}

// A matcher sees every byte, also of a spool that takes none: the command is
// held up for as long as the matcher, which never waits, needs.
func TestA25_MatcherIsWaitedFor(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	s := l.Stream(Stdout)
	dir := filepath.Dir(l.Path(Stdout))
	w := l.Feed(Stdout)
	os.RemoveAll(dir)
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	scans, err := l.register(Query{Pattern: "END", Sources: []Source{Stdout}})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		w.Write(bytes.Repeat([]byte("x"), 4*tailSize))
		w.Write([]byte("END"))
	}()
	await(t, s, tailSize) // it fills the memory there is, and then waits
	for at := int64(0); ; {
		if total := s.Extent().Total; total-at > 2*tailSize {
			t.Fatalf("%d bytes written, %d seen", total, at)
		}
		found, _, err := scans[0].step()
		if err != nil {
			t.Fatal(err)
		}
		if found != nil {
			if found.From != 4*tailSize {
				t.Errorf("found %+v", found)
			}
			break
		}
		if e := s.Extent(); len(e.Omitted) > 0 && e.Omitted[0].To > scans[0].pos {
			t.Fatalf("%v is gone, %d was looked at", e.Omitted, scans[0].pos)
		}
		at = scans[0].pos
	}
	scans[0].unregister()
	os.Remove(dir)
}
