package journal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"procsup/handles"
)

// reads are all ways to read.
func reads(j *Journal) map[string]func() error {
	return map[string]func() error{
		"unfinished": func() error { _, err := j.Unfinished(); return err },
		"run":        func() error { _, err := j.Run(id(1)); return err },
		"spec":       func() error { _, err := j.Spec(id(1)); return err },
		"list":       func() error { _, _, err := j.List(Filter{}); return err },
		"session":    func() error { _, _, err := j.List(Filter{Session: "s", Limit: 5}); return err },
		"live":       func() error { _, _, err := j.List(Filter{LiveOnly: true}); return err },
		"mine":       func() error { _, _, err := j.List(Filter{Session: "s", LiveOnly: true}); return err },
		"key":        func() error { _, _, err := j.Key("k1"); return err },
		"entries":    func() error { _, err := j.Entries(0, "", 0); return err },
		"of a run":   func() error { _, err := j.Entries(0, id(1), 0); return err },
		"id":         func() error { _, err := j.Resolve(id(1), ""); return err },
		"prefix":     func() error { _, err := j.Resolve("hto-01KA", ""); return err },
		"name":       func() error { _, err := j.Resolve("web", "s"); return err },
		"check":      func() error { _, err := j.Check(); return err },
		"repair":     func() error { _, err := j.Repair(); return err },
		"prune":      func() error { _, err := j.Prune(time.Time{}, 0); return err },
	}
}

// S3-48: reads change nothing, not a byte of any file, and see whole batches.
func TestS3_48_ReadsDoNotWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	web := admitted(1, id(1))
	web.name, web.key = "web", "k1"
	commit(t, j, web, admitted(2, id(2)), ended(3, id(2)))
	before := files(t, dir, "journal.db", "journal.db-wal")
	for name, read := range reads(j) {
		if name == "repair" || name == "prune" {
			continue
		}
		if err := read(); err != nil && name != "prefix" {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(before, files(t, dir, "journal.db", "journal.db-wal")) {
			t.Fatalf("%s changed a file", name)
		}
	}
	if _, err := j.reads.Exec("DELETE FROM run"); err == nil {
		t.Error("a connection that reads could write")
	}
}

// files are the contents of files.
func files(t testing.TB, dir string, names ...string) (all []string) {
	t.Helper()
	for _, name := range names {
		path := dir + "/" + name
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			all = append(all, "missing")
			continue
		}
		b, err := exec.Command("cat", path).Output() // by another process: closing a file drops SQLite's locks
		must(t, err)
		all = append(all, string(b))
	}
	return all
}

// S3-48: during a thousand changes readers never see a run go back, nor a list
// that has a part of a batch.
func TestS3_48_ReadersBesideTheWriter(t *testing.T) {
	t.Parallel()
	j := openIn(t, t.TempDir())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			seen := int64(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				runs, _, err := j.List(Filter{})
				if err != nil {
					t.Error(err)
					return
				}
				if len(runs)%2 == 1 {
					t.Errorf("half of a batch: %d runs", len(runs))
					return
				}
				newest := int64(0)
				for _, r := range runs {
					newest = max(newest, r.Seq)
				}
				if newest < seen {
					t.Errorf("seq went from %d to %d", seen, newest)
					return
				}
				seen = newest
			}
		})
	}
	seq := int64(0)
	for i := range 250 {
		both := func(make func(int64, string) step) {
			a, b := make(seq+1, id(2*i)).batch(), make(seq+2, id(2*i+1)).batch()
			seq += 2
			must(t, j.Submit(Batch{Entries: append(a.Entries, b.Entries...), Runs: append(a.Runs, b.Runs...)}).Wait())
		}
		both(admitted)
		both(ended)
	}
	close(stop)
	wg.Wait()
	sound(t, j)
}

// S3-54: newest first; of one millisecond by id descending. The same after a
// restart, in every list.
func TestS3_54_Ties(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	for i, n := range []int{3, 1, 4, 2} {
		s := admitted(int64(i+1), id(n))
		s.at = epoch.Add(time.Duration(i) * time.Microsecond) // one millisecond
		commit(t, j, s)
	}
	old, young := admitted(5, id(9)), admitted(6, id(0))
	old.at, young.at = epoch.Add(-time.Second), epoch.Add(time.Second)
	commit(t, j, old, young)
	want := []string{id(0), id(4), id(3), id(2), id(1), id(9)}
	for range 2 {
		for _, f := range []Filter{{}, {Session: "s"}, {LiveOnly: true}, {Session: "s", LiveOnly: true}} {
			for limit := range 8 {
				f.Limit = limit
				runs, more, err := j.List(f)
				must(t, err)
				n := len(want)
				if limit > 0 {
					n = min(n, limit)
				}
				if got := ids(runs); !slices.Equal(got, want[:n]) || more != (n < len(want)) {
					t.Errorf("%+v: %v more %v, want %v", f, got, more, want[:n])
				}
			}
		}
		runs, err := j.Unfinished()
		must(t, err)
		slices.Reverse(runs)
		if got := ids(runs); !slices.Equal(got, want) {
			t.Errorf("unfinished, backwards: %v, want %v", got, want)
		}
		must(t, j.Close())
		j = openIn(t, dir)
	}
}

func ids(runs []Run) (all []string) {
	for _, r := range runs {
		all = append(all, r.ID)
	}
	return all
}

// S2-37: what may be written for a handle.
func TestS2_37_Resolve(t *testing.T) {
	t.Parallel()
	j := openIn(t, t.TempDir())
	seq := int64(0)
	add := func(n int, session, name string, over bool) string {
		seq++
		s := admitted(seq, id(n))
		s.session, s.name = session, name
		commit(t, j, s)
		if over {
			seq++
			e := ended(seq, id(n))
			e.session, e.name = session, name
			commit(t, j, e)
		}
		return id(n)
	}
	oldWeb, newWeb := add(0xA0, "s", "web", true), add(0xA1, "s", "web", true)
	api, otherAPI := add(0xA2, "s", "api", false), add(0xA3, "t", "api", false)
	live, dead := add(0xA4, "s", "db", false), add(0xA5, "s", "db", true)
	lone := add(0xB00000000000, "s", "hto-x", false)
	for range 7 {
		seq++
		add(int(0xC0+seq), "u", "", false)
	}
	_, _ = oldWeb, dead
	for _, c := range []struct {
		ref, session, want string
	}{
		{api, "", api},
		{strings.ToLower(api), "t", api},
		{lone[:19], "", lone},
		{strings.ToLower(lone[:22]), "", lone},
		{"web", "s", newWeb}, // ended both: the newest
		{"web", "", newWeb},
		{"db", "s", live}, // the living one though the other is newer
		{"api", "s", api},
		{"api", "t", otherAPI},
		{"hto-x", "s", lone}, // a name that looks like a prefix of nothing
		{"web", "t", ""},
		{"", "s", ""},
		{"hto-", "s", ""},
		{"hto-7", "s", ""},
		{"WEB", "s", ""},
		{"api", "", "?"},
		{"hto-01KA", "s", "?"},
		{id(0xA0)[:29], "s", "?"},
	} {
		got, err := j.Resolve(c.ref, c.session)
		switch {
		case c.want == "?":
			var e *handles.Error
			if !errors.As(err, &e) || e.Code != handles.CodeAmbiguous || strings.Count(e.Message, "hto-01KA0") < 2 {
				t.Errorf("%q in %q: %v %v, want ambiguous with some ids", c.ref, c.session, got, err)
			}
		case c.want == "":
			if !errors.Is(err, handles.ErrNotFound) {
				t.Errorf("%q in %q: %v %v, want not found", c.ref, c.session, got, err)
			}
		case got != c.want || err != nil:
			t.Errorf("%q in %q: %v %v, want %v", c.ref, c.session, got, err, c.want)
		}
	}
}

func FuzzResolve(f *testing.F) {
	dir := f.TempDir()
	j, err := Open(dir, Options{Verify: true})
	must(f, err)
	f.Cleanup(func() { j.Close() })
	names := []string{"web", "hto-", "ünï", "a b", "%", "_"}
	for i := range 12 {
		s := admitted(int64(i+1), id(i))
		s.name = names[i%len(names)]
		s.session = fmt.Sprint(i)
		commit(f, j, s)
	}
	for _, s := range []string{"", "hto-", "HTO-01", "hso-\x00", "hto-\xff\xff", "web", "%", "hto-01KA' OR 1", id(3), id(3)[:20]} {
		f.Add(s, "")
		f.Add(s, "1")
	}
	f.Fuzz(func(t *testing.T, ref, session string) {
		got, err := j.Resolve(ref, session)
		var e *handles.Error
		switch {
		case err == nil:
			r, err := j.Run(got)
			if err != nil {
				t.Fatalf("%q: %q is no run: %v", ref, got, err)
			}
			if !strings.HasPrefix(r.ID, strings.ToLower(ref[:min(4, len(ref))])+strings.ToUpper(ref[min(4, len(ref)):])) && r.Name != ref {
				t.Fatalf("%q gave %q named %q", ref, r.ID, r.Name)
			}
		case !errors.As(err, &e):
			t.Fatalf("%q: %v", ref, err)
		case got != "":
			t.Fatalf("%q: %q besides %v", ref, got, err)
		}
	})
}

// No query reads or sorts what it does not return: each goes by an index.
func TestPlans(t *testing.T) {
	t.Parallel()
	j := openIn(t, t.TempDir())
	commit(t, j, admitted(1, id(1)))
	const order = " ORDER BY run.created DESC, run.id DESC LIMIT 50"
	for query, want := range map[string]string{
		runColumns + ", spec.spec FROM run LEFT JOIN spec USING(n) WHERE live = 1 ORDER BY run.created, run.id": "run_live",
		runColumns + " FROM run" + order:                                                                                               "run_created",
		runColumns + " FROM run WHERE session = 's'" + order:                                                                           "run_session",
		runColumns + " FROM run WHERE live = 1" + order:                                                                                "run_live",
		runColumns + " FROM run WHERE live = 1 AND +session = 's'" + order:                                                             "run_live",
		"SELECT id FROM run WHERE id >= 'a' AND id < 'b' ORDER BY id DESC LIMIT 5":                                                     "autoindex_run",
		"SELECT id, live FROM run WHERE name <> '' AND name = 'n' AND session = 's' ORDER BY live DESC, created DESC, id DESC LIMIT 6": "run_name",
		"SELECT seq FROM journal WHERE seq > 5 AND run = 'x' ORDER BY seq LIMIT 9":                                                     "journal_run",
		"SELECT id FROM run WHERE live = 0 AND ended < 5 ORDER BY ended LIMIT 64":                                                      "run_ended",
		"SELECT max(seq) FROM journal":                                                                                                 "SEARCH journal",
	} {
		rows, err := j.reads.Query("EXPLAIN QUERY PLAN " + query)
		must(t, err)
		type line struct {
			a, b, c int
			text    string
		}
		lines, err := collect(rows, func(l *line) []any { return []any{&l.a, &l.b, &l.c, &l.text} })
		must(t, err)
		var plan []string
		for _, l := range lines {
			plan = append(plan, l.text)
		}
		if got := strings.Join(plan, "; "); !strings.Contains(got, want) || strings.Contains(got, "TEMP") {
			t.Errorf("%s\n  goes by %s, want %s", query, got, want)
		}
	}
}
