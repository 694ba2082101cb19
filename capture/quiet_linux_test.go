package capture

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// opened reports whether this process has a file open.
func opened(t *testing.T, path string) bool {
	t.Helper()
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == path {
			return true
		}
	}
	return false
}

// Performance 6: the spool of a command that says nothing is there, and is not
// opened, neither while it runs nor at its end.
func TestQuietStreamOpensNothing(t *testing.T) {
	l, err := Open(Config{Dir: t.TempDir() + "/log"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w, err := l.Pipe(Stdout)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.Path(Stdout)); err != nil {
		t.Error(err)
	}
	if opened(t, l.Path(Stdout)) {
		t.Error("the spool is open before there is a byte")
	}
	s := l.Stream(Stdout)
	s.wmu.Lock() // nobody opens it behind our back
	w.Close()
	s.wmu.Unlock()
	if !l.Drain(t.Context(), time.Minute, time.Minute) {
		t.Error("not complete")
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.w.seg != nil {
		t.Error("the spool was opened for nothing")
	}
}

// The index comes with the first byte, and a log without one has no records.
func TestQuietLogHasNoIndex(t *testing.T) {
	dir := t.TempDir() + "/log"
	l, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w, err := l.Pipe(Stdout)
	if err != nil {
		t.Fatal(err)
	}
	none := func(l *Log) {
		t.Helper()
		if recs, err := l.Records(); len(recs) != 0 || err != nil {
			t.Errorf("records %v, %v of a log without a byte", recs, err)
		}
		if exists(filepath.Join(dir, "index")) {
			t.Error("there is an index of nothing")
		}
	}
	none(l)
	again, err := Reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	none(again)
	if l, err := Open(Config{Dir: dir}); !errors.Is(err, ErrExists) {
		t.Errorf("a second log in the folder: %v, %v", l, err)
	}
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if !l.Drain(t.Context(), time.Minute, time.Minute) {
		t.Error("not complete")
	}
	if recs, err := l.Records(); len(recs) != 1 || err != nil {
		t.Errorf("records %v, %v, want one", recs, err)
	}
	if err := os.Remove(filepath.Join(dir, "index")); err != nil {
		t.Fatal(err)
	}
	if again, err = Reopen(dir); err != nil {
		t.Fatal(err)
	}
	if recs, err := again.Records(); len(recs) != 0 || err != nil { // the bytes are there, their times are not
		t.Errorf("records %v, %v of a log whose index is gone", recs, err)
	}
}
