package journal

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzLog: a write-ahead log, its index and a database's head that were cut or
// overwritten tell no more than there is.
func FuzzLog(f *testing.F) {
	dir := f.TempDir()
	j, err := Open(dir, Options{Verify: true})
	must(f, err)
	for i := range 3 {
		commit(f, j, admitted(int64(i+1), id(i)))
	}
	for _, name := range []string{"journal.db-wal", "journal.db-shm", "journal.db"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		must(f, err)
		for _, n := range []int{9000, 150, 40, 10} {
			f.Add(b[:min(n, len(b))], uint32(1))
		}
	}
	must(f, j.Close())
	path := filepath.Join(dir, "x")
	f.Fuzz(func(t *testing.T, b []byte, pages uint32) {
		must(t, os.WriteFile(path, b, 0o600))
		w, err := readWAL(path, pages)
		must(t, err)
		if int64(w.committed)*(24+512) > int64(len(b)) || len(w.beyond) > int(w.committed) {
			t.Errorf("%d frames and %d pages in %d bytes", w.committed, len(w.beyond), len(b))
		}
		if x, err := readIndex(path); err != nil || x.ok && len(b) < 136 {
			t.Errorf("index %+v, %v", x, err)
		}
		h, err := readHead(path)
		if err != nil {
			return
		}
		h.pages(int64(len(b)))
		_ = h.check(path)
		_ = whole(path, h, w, int64(len(b)))
	})
}
