package journal

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"procsup/handles"
)

// everything is all that can be read, to compare.
func everything(t *testing.T, j *Journal) (all []any) {
	t.Helper()
	runs, _, err := j.List(Filter{})
	must(t, err)
	live, err := j.Unfinished()
	must(t, err)
	entries, err := j.Entries(0, "", 0)
	must(t, err)
	all = append(all, runs, live, entries)
	for _, r := range runs {
		spec, err := j.Spec(r.ID)
		must(t, err)
		all = append(all, string(spec))
	}
	for i := range 3 {
		k, ok, err := j.Key(fmt.Sprintf("k%d", i))
		must(t, err)
		all = append(all, k, ok)
	}
	return all
}

// S3-51: a projection broken by hand is found and mended from the entries; the
// results are the same as before, and Check has nothing left to say.
func TestS3_51_BrokenProjections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql  string
		want string // in Dirty
		n    int
	}{
		"nothing":         {"SELECT 1", "", 0},
		"status":          {"UPDATE run SET status = 'failed' WHERE id = '" + id(0) + "'", "status is failed, its entries say completed", 1},
		"lives on":        {"UPDATE run SET live = 1, ended = 0 WHERE id = '" + id(0) + "'", "live is true", 1},
		"revision":        {"UPDATE run SET revision = 77", "revision is 77", 3},
		"record":          {"UPDATE run SET record = replace(record, 'sh', 'SH') WHERE id = '" + id(1) + "'", "record is not", 1},
		"created":         {"UPDATE run SET created = created + 1 WHERE id = '" + id(2) + "'", "created is", 1},
		"name":            {"UPDATE run SET name = 'other' WHERE id = '" + id(2) + "'", "name is other", 1},
		"run gone":        {"DELETE FROM run WHERE id = '" + id(1) + "'", "it is missing", 1},
		"all gone":        {"DELETE FROM run; DELETE FROM spec; DELETE FROM key", "it is missing", 6},
		"a run from air":  {"INSERT INTO run(id, session, name, status, live, created, ended, revision, seq) VALUES('hto-X', '', '', 'running', 1, 5, 0, 1, 1)", "it has no entry", 1},
		"spec":            {"UPDATE spec SET spec = '{}'", "spec is not", 3},
		"spec gone":       {"DELETE FROM spec", "spec is not", 3},
		"key gone":        {"DELETE FROM key WHERE key = 'k1'", `key "k1" of run ` + id(1) + ": it is missing", 1},
		"key forged":      {"UPDATE key SET fingerprint = 'x' WHERE key = 'k1'", "fingerprint is not", 1},
		"key from air":    {"INSERT INTO key VALUES('air', 'x', 'hto-X')", "no entry has it", 1},
		"key of another":  {"UPDATE key SET run = '" + id(2) + "' WHERE key = 'k1'", "no entry has it", 2},
		"spec of nothing": {"INSERT INTO spec VALUES(4711, 'x')", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			j := openIn(t, dir)
			for i := range 3 {
				s := admitted(int64(i+1), id(i))
				s.name, s.key = fmt.Sprint("n", i), fmt.Sprint("k", i)
				commit(t, j, s)
			}
			e := ended(4, id(0))
			e.name = "n0"
			commit(t, j, e)
			must(t, j.Submit(Batch{Entries: []Entry{{Seq: 5, Kind: "note"}, {Seq: 6, Kind: "stop", Run: id(1), Body: []byte(`{"by":"user"}`)}}}).Wait())
			before := everything(t, j)
			raw(t, dir, c.sql)
			rep, err := j.Check()
			must(t, err)
			if len(rep.Dirty) != c.n || len(rep.Damage)+len(rep.Unfit) > 0 || !strings.Contains(strings.Join(rep.Dirty, "\n"), c.want) || rep.OK() != (c.n == 0) {
				t.Errorf("check: %+v, want %d times %q", rep, c.n, c.want)
			}
			again, err := j.Check()
			slices.Sort(rep.Dirty)
			slices.Sort(again.Dirty)
			if err != nil || !reflect.DeepEqual(rep, again) {
				t.Errorf("checked again: %+v %v, was %+v", again, err, rep)
			}
			if rep, err = j.Repair(); err != nil || rep.Repaired != c.n || !rep.OK() {
				t.Errorf("repair: %+v %v", rep, err)
			}
			if rep := sound(t, j); rep.Runs != 3 || rep.Entries != 6 || rep.Keys != 3 || rep.LastSeq != 6 {
				t.Errorf("after repair: %+v", rep)
			}
			if after := everything(t, j); !reflect.DeepEqual(before, after) {
				t.Errorf("results are\n%v, were\n%v", after, before)
			}
			commit(t, j, ended(7, id(1)))
		})
	}
}

// S3-51: an index that lies is made again.
func TestS3_51_BrokenIndex(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	for i := range 20 {
		commit(t, j, admitted(int64(i+1), id(i)))
	}
	must(t, j.Close())
	raw(t, dir, "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, 'live = 1', 'live = 0') WHERE name = 'run_live'")
	j = openIn(t, dir)
	commit(t, j, admitted(30, id(30)))
	must(t, j.Close())
	raw(t, dir, "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, 'live = 0', 'live = 1') WHERE name = 'run_live'")
	j = openIn(t, dir)
	if rep, err := j.Check(); err != nil || len(rep.Damage) == 0 || rep.OK() {
		t.Fatalf("check: %+v %v", rep, err)
	}
	if rep, err := j.Repair(); err != nil || !rep.Reindexed || !rep.OK() {
		t.Errorf("repair: %+v %v", rep, err)
	}
	sound(t, j)
	if runs, err := j.Unfinished(); err != nil || len(runs) != 21 {
		t.Errorf("%d unfinished, %v", len(runs), err)
	}
}

// S3-51: entries that cannot be folded are said, and what is kept of their run
// is left alone.
func TestS3_51_UnfitEntries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sql, want string }{
		"no JSON":   {"UPDATE journal SET body = '{' WHERE seq = 2", "not JSON"},
		"no record": {"UPDATE journal SET body = '{\"record\":7}' WHERE seq = 1", "cannot be read"},
		"other run": {"UPDATE journal SET body = replace(body, '" + id(1) + "', '" + id(2) + "') WHERE seq = 2", "its record is of"},
		"backwards": {"UPDATE journal SET body = replace(body, '\"revision\":1,', '\"revision\":9,') WHERE seq = 1", "revision is 2 after 9"},
		"revived":   {"UPDATE journal SET body = replace(body, 'starting', 'completed') WHERE seq = 1; UPDATE journal SET body = replace(body, 'completed', 'running') WHERE seq = 2", "after the end"},
		"silent":    {"UPDATE journal SET body = NULL", "none of its entries"},
		"bad keys":  {"UPDATE journal SET keys = '{' WHERE seq = 1", "keys cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			j := openIn(t, dir)
			commit(t, j, admitted(1, id(1)), ended(2, id(1)))
			raw(t, dir, c.sql)
			rep, err := j.Check()
			if err != nil || rep.OK() || !strings.Contains(strings.Join(rep.Unfit, "\n"), c.want) {
				t.Errorf("check: %+v %v, want %q", rep, err, c.want)
			}
			if _, err := j.Repair(); err != nil {
				t.Errorf("repair: %v", err)
			}
			if _, err := j.Run(id(1)); err != nil {
				t.Errorf("the run: %v", err)
			}
		})
	}
}

// Records are kept 7 days: what ended before goes whole, what lives or is
// among the newest stays, and no number is used again.
func TestPrune(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	seq := int64(0)
	next := func(make func(int64, string) step, n int, at time.Time) {
		seq++
		s := make(seq, id(n))
		s.at = at
		if s.kind == "admitted" {
			s.key = fmt.Sprint("k", n)
		}
		commit(t, j, s)
	}
	day := func(n int) time.Time { return epoch.Add(time.Duration(n) * 24 * time.Hour) }
	next(admitted, 0, day(0)) // lives for ever
	for i := range 200 {
		next(admitted, i+1, day(1))
		next(ended, i+1, day(2).Add(time.Duration(i)*time.Second))
	}
	next(admitted, 300, day(1))
	next(ended, 300, day(9)) // began early, ended late
	for range 100 {
		seq++
		must(t, j.Submit(Batch{Entries: []Entry{{Seq: seq, At: day(2), Kind: "note"}}}).Wait())
	}
	top := seq
	if n, err := j.Prune(day(1), 0); n != 0 || err != nil {
		t.Errorf("nothing is so old: %d %v", n, err)
	}
	if n, err := j.Prune(day(8), 500); n != 0 || err != nil {
		t.Errorf("500 stay: %d %v", n, err)
	}
	if n, err := j.Prune(day(8), 11); n != 190 || err != nil {
		t.Errorf("11 stay: %d %v, want 190", n, err)
	}
	if rep := sound(t, j); rep.Runs != 12 || rep.Entries != 1+2*11 || rep.Keys != 12 {
		t.Errorf("after: %+v", rep)
	}
	for n, want := range map[int]bool{0: true, 1: false, 190: false, 191: true, 200: true, 300: true} {
		_, err := j.Run(id(n))
		_, ok, kerr := j.Key(fmt.Sprint("k", n))
		if err != nil && !errors.Is(err, handles.ErrNotFound) || kerr != nil {
			t.Fatal(err, kerr)
		}
		if (err == nil) != want || ok != want {
			t.Errorf("run %d is there: %v, its key: %v, want %v", n, err == nil, ok, want)
		}
	}
	if n, err := j.Prune(day(30), 0); n != 11 || err != nil {
		t.Errorf("all: %d %v, want 11", n, err)
	}
	must(t, j.Close())
	if j = openIn(t, dir); j.LastSeq() != top {
		t.Errorf("LastSeq %d, want %d though its entry is gone", j.LastSeq(), top)
	}
	if rep := sound(t, j); rep.Runs != 1 {
		t.Errorf("at the end: %+v", rep)
	}
}
