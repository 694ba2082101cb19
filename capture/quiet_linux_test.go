package capture

import (
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
