package capture

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A quotaRig is a folder of logs under a quota.
type quotaRig struct {
	*Quota
	t    *testing.T
	base string
	gone []string // since the last look
}

func newQuotaRig(t *testing.T, base string, max int64) *quotaRig {
	r := &quotaRig{Quota: NewQuota(max, base), t: t, base: base}
	t.Cleanup(r.Wait)
	r.OnEvict = func(dir string) { r.gone = append(r.gone, filepath.Base(dir)) }
	return r
}

// measured is the rig once it may remove.
func (r *quotaRig) measured() *quotaRig {
	r.t.Helper()
	if err := r.Measure(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return r
}

func (r *quotaRig) fill(name string, n int) *Log {
	r.t.Helper()
	l := open(r.t, Config{Dir: filepath.Join(r.base, name), Quota: r.Quota})
	r.t.Cleanup(r.Wait)
	if _, err := l.Feed(Stdout).Write(bytes.Repeat([]byte("q"), n)); err != nil {
		r.t.Fatal(err)
	}
	return l
}

// want checks what was removed since the last time, and what is kept.
func (r *quotaRig) want(used int64, gone ...string) {
	r.t.Helper()
	r.Wait()
	if fmt.Sprint(r.gone) != fmt.Sprint(gone) || r.Used() != used {
		r.t.Errorf("removed %v, %d bytes left, want %v, %d", r.gone, r.Used(), gone, used)
	}
	r.gone = nil
}

func TestQuota(t *testing.T) {
	guard(t)
	q := newQuotaRig(t, t.TempDir(), 1<<20).measured()
	a := q.fill("a", 400_000)
	a.Close()
	q.fill("b", 400_000).Close()
	q.want(800_000)
	c := q.fill("c", 400_000) // too much: the oldest that has ended goes
	q.want(800_000, "a")
	want := Extent{400_000, []Range{{0, 400_000}}, "state quota"}
	if e := a.Stream(Stdout).Extent(); fmt.Sprint(e) != fmt.Sprint(want) {
		t.Errorf("extent %v, want %v", e, want)
	}
	r, err := Reopen(filepath.Join(q.base, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if e := r.Stream(Stdout).Extent(); fmt.Sprint(e) != fmt.Sprint(want) {
		t.Errorf("reopened: extent %v, want %v", e, want)
	}
	if exists(filepath.Join(q.base, "a", "stdout")) {
		t.Error("the spool is still there")
	}
	if err := q.Remove(filepath.Join(q.base, "b")); err != nil || exists(filepath.Join(q.base, "b")) {
		t.Error("the log is still there", err)
	}
	q.want(400_000)
	// Only a running log is left: it loses its middle, not its newest bytes.
	c.Feed(Stdout).Write(bytes.Repeat([]byte("q"), 3<<20))
	q.Wait()
	c.Feed(Stdout).Write(bytes.Repeat([]byte("r"), 3<<20))
	if q.Used() > 4<<20 {
		t.Errorf("%d bytes kept by the running log", q.Used())
	}
	c.Close() // and it goes when it has ended
	q.want(0, "c")
	q.fill("d", 2<<20).Close()
	q.want(0, "d")
}

// G18: what earlier processes left counts too, and goes first; what is none of
// ours, or was taken up again, does not.
func TestQuotaOfEarlierLives(t *testing.T) {
	guard(t)
	base := t.TempDir()
	before := newQuotaRig(t, base, 1<<20).measured()
	for k, name := range []string{"new", "old", "lives"} {
		before.fill(name, 300_000).Close()
		at := time.Now().Add(time.Duration(-k-1) * time.Hour)
		for _, file := range []string{"stdout", "index"} {
			if err := os.Chtimes(filepath.Join(base, name, file), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(base, "notes"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "notes", "mine"), make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	q := newQuotaRig(t, base, 1<<20)
	lives := open(t, Config{Dir: filepath.Join(base, "lives"), Quota: q.Quota, Resume: true})
	t.Cleanup(q.Wait)
	early := q.fill("early", 1<<20) // too much, but others may still be taken up
	q.want(300_000 + 1<<20)
	early.Close()
	if err := q.Remove(filepath.Join(base, "early")); err != nil {
		t.Fatal(err)
	}
	q.measured().want(900_000)
	q.fill("next", 300_000).Close()
	q.want(900_000, "old")
	q.fill("last", 300_000).Close()
	q.want(900_000, "new")
	lives.Close()
	q.fill("more", 300_000).Close()
	q.Wait()
	q.fill("most", 300_000).Close()
	q.Wait()
	slices.Sort(q.gone) // lives ended after next, and wrote before it
	q.want(900_000, "lives", "next")
	newQuotaRig(t, filepath.Join(base, "none"), 1).measured()
}

// One look finds but so many, and the oldest of all that are there.
func TestQuotaOfManyLogs(t *testing.T) {
	guard(t)
	const many = 2*lookMost + 100
	base := t.TempDir()
	for i := range many {
		dir := filepath.Join(base, fmt.Sprintf("%04d", i*7919%many)) // not in the order of their names
		at := time.Now().Add(time.Duration(i-many) * time.Second)
		if os.Mkdir(dir, 0o700) != nil || os.WriteFile(filepath.Join(dir, "stdout"), []byte("12345"), 0o600) != nil || os.Chtimes(filepath.Join(dir, "stdout"), at, at) != nil {
			t.Fatal("cannot write logs")
		}
	}
	q := newQuotaRig(t, base, 1<<20)
	found := q.look()
	if len(found) != lookMost {
		t.Fatalf("%d found, want %d", len(found), lookMost)
	}
	for i, e := range found {
		if want := fmt.Sprintf("%04d", i*7919%many); filepath.Base(e.dir) != want {
			t.Fatalf("number %d is %s, want %s", i, e.dir, want)
		}
	}
	q = newQuotaRig(t, base, 500).measured()
	q.Wait()
	if len(q.gone) != many-100 || q.Used() != 500 {
		t.Errorf("%d removed, %d bytes left, want 100 logs of 5 left", len(q.gone), q.Used())
	}
}
