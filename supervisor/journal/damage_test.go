package journal

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"procsup/handles"
)

// killed is a directory as SIGKILL leaves it, with n admitted and ended runs,
// and the commits all in the WAL.
func killed(t testing.TB, n int) string {
	t.Helper()
	return killedAgain(t, t.TempDir(), 0, n)
}

// killedAgain opens what is in from, and is killed after runs first to last.
func killedAgain(t testing.TB, from string, first, last int) string {
	t.Helper()
	to := t.TempDir()
	j := openIn(t, from)
	for i := first; i < last; i++ {
		commit(t, j, admitted(int64(2*i+1), id(i)), ended(int64(2*i+2), id(i)))
	}
	for _, name := range []string{"journal.db", "journal.db-wal", "journal.db-shm"} {
		must(t, os.WriteFile(to+"/"+name, []byte(files(t, from, name)[0]), 0o600))
	}
	must(t, j.Close())
	return to
}

func edit(t testing.TB, path string, f func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, f(b), 0o600))
}

// A damaged database is refused, says how, and stays as it is: it is not made
// anew.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    func(dir string, b []byte) []byte
		want string
	}{
		"empty":      {func(_ string, b []byte) []byte { return nil }, "truncated to 0 bytes"},
		"a few":      {func(_ string, b []byte) []byte { return b[:50] }, "truncated to 50 bytes"},
		"half":       {func(_ string, b []byte) []byte { return b[:len(b)/2/4096*4096] }, "pages are there"},
		"in a page":  {func(_ string, b []byte) []byte { return b[:len(b)-100] }, "pages are there"},
		"no journal": {func(_ string, b []byte) []byte { return []byte(strings.Repeat("hello world ", 1000)) }, "does not begin as a database"},
		"foreign":    {func(_ string, b []byte) []byte { copy(b[60:], make([]byte, 12)); return b }, "not a journal of procsup"},
		"missing, the WAL is there": {func(dir string, b []byte) []byte {
			must(t, os.WriteFile(dir+"/journal.db-wal", make([]byte, 5000), 0o600))
			must(t, os.Remove(dir+"/journal.db"))
			return nil
		}, "the file is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := openIn(t, dir)
			for i := range 50 {
				commit(t, j, admitted(int64(i+1), id(i)))
			}
			must(t, j.Close())
			b, err := os.ReadFile(j.path)
			must(t, err)
			if b = c.f(dir, b); !strings.HasPrefix(name, "missing") {
				must(t, os.WriteFile(j.path, b, 0o600))
			}
			before := listing(t, dir)
			if _, err := Open(dir, Options{}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), j.path) {
				t.Errorf("%v, want the path and %q", err, c.want)
			}
			if !slices.Equal(before, listing(t, dir)) {
				t.Error("the files were touched")
			}
		})
	}
}

// What SIGKILL leaves is no damage: all commits of the WAL are there, with its
// index or without, and a transaction cut short at its end is nothing.
func TestS3_44_WALAsKilled(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(dir string){
		"whole":    func(string) {},
		"no index": func(dir string) { must(t, os.Remove(dir+"/journal.db-shm")) },
		"half a frame behind": func(dir string) {
			edit(t, dir+"/journal.db-wal", func(b []byte) []byte { return append(b, b[32:1000]...) })
		},
	} {
		dir := killed(t, 20)
		f(dir)
		j := openIn(t, dir)
		if w := j.Warnings(); len(w) > 0 {
			t.Errorf("%s: %v", name, w)
		}
		if rep := sound(t, j); rep.Entries != 40 {
			t.Errorf("%s: %d entries, want 40", name, rep.Entries)
		}
	}
}

// A WAL that lost what was committed is said and a copy of it kept; what can be
// read of it is whole, and work goes on.
func TestTornWAL(t *testing.T) {
	t.Parallel()
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 1; return b }
	}
	for name, f := range map[string]func(dir string){
		"cut":     func(dir string) { edit(t, dir+"/journal.db-wal", func(b []byte) []byte { return b[:len(b)*2/3] }) },
		"a bit":   func(dir string) { edit(t, dir+"/journal.db-wal", func(b []byte) []byte { return flip(len(b) / 2)(b) }) },
		"header":  func(dir string) { edit(t, dir+"/journal.db-wal", flip(17)) },
		"emptied": func(dir string) { edit(t, dir+"/journal.db-wal", func([]byte) []byte { return nil }) },
		"gone":    func(dir string) { must(t, os.Remove(dir+"/journal.db-wal")) },
		"a bit, no index": func(dir string) {
			edit(t, dir+"/journal.db-wal", func(b []byte) []byte { return flip(len(b) / 2)(b) })
			must(t, os.Remove(dir+"/journal.db-shm"))
		},
	} {
		dir := killed(t, 20)
		f(dir)
		torn := files(t, dir, "journal.db-wal")[0]
		j := openIn(t, dir)
		if w := j.Warnings(); len(w) != 1 || !errors.Is(w[0], ErrDamaged) || !strings.Contains(w[0].Error(), "torn") {
			t.Errorf("%s: warnings %v, want one", name, w)
		}
		if kept := files(t, dir, "journal.db-wal.damaged")[0]; kept != torn {
			t.Errorf("%s: the copy is not the WAL", name)
		}
		rep, err := j.Check()
		must(t, err)
		if rep.OK() || len(rep.Damage) != 1 || len(rep.Dirty)+len(rep.Unfit) > 0 || rep.Entries >= 40 {
			t.Errorf("%s: %+v", name, rep)
		}
		commit(t, j, admitted(100, id(100)))
		must(t, j.Close())
		j = openIn(t, dir)
		if w := j.Warnings(); len(w) > 0 {
			t.Errorf("%s, once more: %v", name, w)
		}
		sound(t, j)
		must(t, j.Close())
	}
}

// A WAL that nobody lives long enough to fill is moved into the database all the
// same: each start reads it (A7: the time until the next supervisor answers).
func TestA7_ManyDeathsMakeNoLongWAL(t *testing.T) {
	t.Parallel()
	dir, n := t.TempDir(), 0
	for range 8 {
		dir = killedAgain(t, dir, n, n+60) // less than walGood each
		n += 60
	}
	info, err := os.Stat(dir + "/journal.db-wal")
	must(t, err)
	if pages := info.Size() / (24 + 4096); pages > 2*walGood {
		t.Errorf("%d pages in the WAL", pages)
	}
	if rep := sound(t, openIn(t, dir)); rep.Entries != 2*n {
		t.Errorf("%d entries, want %d", rep.Entries, 2*n)
	}
}

// A page of the database that the WAL has is not missing in the file: a
// checkpoint was killed.
func TestS3_44_KilledInACheckpoint(t *testing.T) {
	t.Parallel()
	dir := killed(t, 60)
	b := []byte(files(t, dir, "journal.db-wal")[0])
	last := uint32(0)
	for off := 32; off+24 <= len(b); off += 24 + 4096 {
		if n := binary.BigEndian.Uint32(b[off+4:]); n != 0 {
			last = n
		}
	}
	edit(t, dir+"/journal.db", func(db []byte) []byte {
		if int(last) <= len(db)/4096 {
			t.Fatalf("the WAL does not make the file longer: %d of %d", last, len(db)/4096)
		}
		binary.BigEndian.PutUint32(db[28:], last) // its first page was written, the others not
		return db
	})
	if rep := sound(t, openIn(t, dir)); rep.Entries != 120 {
		t.Errorf("%d entries, want 120", rep.Entries)
	}
}

// A damaged page is an ErrDamaged where it is met, never a panic, and the other
// files say so too.
func TestDamagedPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	for i := range 200 {
		s := admitted(int64(i+1), id(i))
		s.pad = 300
		commit(t, j, s)
	}
	must(t, j.Close())
	edit(t, dir+"/journal.db", func(b []byte) []byte {
		for i := 20 * 4096; i < len(b)-20*4096; i++ {
			b[i] = 0xff
		}
		return b
	})
	j, err := Open(dir, Options{})
	if err != nil {
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("open: %v", err)
		}
		return
	}
	defer j.Close()
	if rep, err := j.Check(); !errors.Is(err, ErrDamaged) && (err != nil || rep.OK()) {
		t.Errorf("check: %+v %v", rep, err)
	}
	if _, err := j.Entries(0, "", 0); !errors.Is(err, ErrDamaged) {
		t.Errorf("entries: %v", err)
	}
	if err := j.Submit(admitted(1000, id(1000)).batch()).Wait(); err != nil && !errors.Is(err, handles.ErrPersistence) {
		t.Errorf("commit: %v", err)
	}
}

// FuzzCorrupt changes any of the files anywhere: everything may be refused,
// nothing may panic or hang, and what Check calls sound is sound.
func FuzzCorrupt(f *testing.F) {
	from := killed(f, 12)
	names := []string{"journal.db", "journal.db-wal", "journal.db-shm"}
	whole := files(f, from, names...)
	f.Add(uint8(0), uint32(100), []byte{0xff, 0xff}, uint32(0))
	f.Add(uint8(0), uint32(5000), []byte{0, 0, 0}, uint32(0))
	f.Add(uint8(1), uint32(40), []byte{1}, uint32(0))
	f.Add(uint8(1), uint32(0), []byte{}, uint32(9000))
	f.Add(uint8(2), uint32(16), []byte{0xff, 0xff, 0xff, 0xff}, uint32(0))
	f.Add(uint8(0), uint32(16), []byte{0, 1, 9, 9}, uint32(0))
	f.Fuzz(func(t *testing.T, which uint8, at uint32, change []byte, cut uint32) {
		dir := t.TempDir()
		for i, name := range names {
			b := []byte(whole[i])
			if i == int(which)%len(names) {
				if int(at) < len(b) {
					copy(b[at:], change)
				}
				b = b[:max(0, len(b)-int(cut%uint32(len(b)+1)))]
			}
			must(t, os.WriteFile(dir+"/"+name, b, 0o600))
		}
		j, err := Open(dir, Options{})
		if err != nil {
			return
		}
		defer j.Close()
		for _, read := range reads(j) {
			read() // errors are fine
		}
		j.Submit(admitted(1_000_000, id(999)).batch()).Wait()
		if rep, err := j.Repair(); err == nil && rep.OK() {
			if again, err := j.Check(); err != nil || !again.OK() {
				t.Errorf("repaired, and still %+v %v", again, err)
			}
		}
	})
}

// S4-06: a journal that grows past 1 GiB in the WAL, where SQLite leaves out the page of
// its locks (sqlite.org/fileformat2.html#lockbyte), is whole.
func TestJournalOfAGibibyte(t *testing.T) {
	t.Parallel()
	h := make(header, 100)
	binary.BigEndian.PutUint16(h[16:], 4096)
	w := wal{committed: 2, pages: 262_147, beyond: map[uint32]bool{262_144: true, 262_146: true, 262_147: true}}
	if err := whole("j", h, w, 262_143*4096); err != nil {
		t.Error(err)
	}
	delete(w.beyond, 262_144)
	if err := whole("j", h, w, 262_143*4096); !errors.Is(err, ErrDamaged) {
		t.Errorf("without another page: %v", err)
	}
}
