package journal

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"procsup/handles"
)

// helpCommit commits from four goroutines and says each number only after it is
// durable, until it is killed.
func helpCommit(args []string) int {
	j, err := Open(args[0], Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	seq := j.LastSeq()
	for range 4 {
		go func() {
			for {
				mu.Lock()
				seq++
				n := seq
				c := j.Submit(admitted(n, id(int(n))).batch())
				mu.Unlock()
				if err := c.Wait(); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Println(n)
			}
		}()
	}
	select {}
}

// S3-44: what was answered is there after SIGKILL at any moment, and the file
// is whole.
func TestS3_44_KillLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acked := map[int64]bool{}
	for round := range 30 {
		cmd := helper(t, "commit", dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n, stop := 0, rand.IntN(200); lines.Scan(); n++ {
			seq, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				break // cut by the kill
			}
			if acked[seq] {
				t.Fatalf("round %d: number %d was given twice", round, seq)
			}
			acked[seq] = true
			if n == stop {
				must(t, cmd.Process.Signal(syscall.SIGKILL))
			}
		}
		cmd.Wait()
		j := openIn(t, dir)
		if w := j.Warnings(); len(w) > 0 {
			t.Errorf("round %d: warnings %v", round, w)
		}
		entries, err := j.Entries(0, "", 0)
		must(t, err)
		have := map[int64]bool{}
		for _, e := range entries {
			have[e.Seq] = true
		}
		for seq := range acked {
			if !have[seq] {
				t.Errorf("round %d: %d was answered and is lost", round, seq)
			}
		}
		if last := entries[len(entries)-1].Seq; j.LastSeq() != last {
			t.Errorf("LastSeq %d, want %d", j.LastSeq(), last)
		}
		if round%10 == 9 {
			sound(t, j)
		}
		must(t, j.Close())
	}
	t.Logf("%d batches answered", len(acked))
}

// S3-45: of many who decide at once each gets its own number, and the journal
// has them in that order; what depends on an earlier batch is never before it.
func TestS3_45_OrderOfSubmit(t *testing.T) {
	t.Parallel()
	j := openIn(t, t.TempDir())
	var mu sync.Mutex
	var order []int64
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 50 {
				run := id(worker*100 + i)
				mu.Lock()
				seq := int64(len(order) + 1)
				a := j.Submit(admitted(seq, run).batch())
				order = append(order, seq)
				mu.Unlock()
				mu.Lock()
				seq = int64(len(order) + 1)
				b := j.Submit(ended(seq, run).batch())
				order = append(order, seq)
				mu.Unlock()
				<-b.Done()
				select {
				case <-a.Done():
				default:
					t.Errorf("run %s: the end is durable before its beginning", run)
				}
				if err := errors.Join(a.Wait(), b.Err()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	entries, err := j.Entries(0, "", 0)
	must(t, err)
	if len(entries) != len(order) {
		t.Fatalf("%d entries, want %d", len(entries), len(order))
	}
	for i, e := range entries {
		if e.Seq != int64(i+1) {
			t.Fatalf("entry %d has number %d", i, e.Seq)
		}
	}
	sound(t, j)
}

// S3-45: a number is used once; out of order is refused and changes nothing.
func TestS3_45_NumbersRise(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	commit(t, j, admitted(5, id(1)))
	differs := admitted(6, id(2)).batch()
	differs.Runs[0].Status = "running"
	for name, b := range map[string]Batch{
		"differs":     differs,
		"again":       admitted(5, id(2)).batch(),
		"before":      admitted(4, id(2)).batch(),
		"empty":       {},
		"run alone":   {Entries: []Entry{{Seq: 6, Run: id(3)}}, Runs: []Run{{ID: id(2), Seq: 6}}},
		"wrong entry": {Entries: []Entry{{Seq: 6, Run: id(2)}}, Runs: []Run{{ID: id(2), Seq: 5}}},
		"key alone":   {Entries: []Entry{{Seq: 6, Run: id(3)}}, Keys: []Key{{"k", "f", id(2)}}},
		"not folded":  {Entries: []Entry{{Seq: 6, Run: id(2), Body: []byte(`{}`)}}, Runs: []Run{{ID: id(2), Seq: 6}}},
	} {
		if err := j.Submit(b).Wait(); !errors.Is(err, handles.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	commit(t, j, admitted(6, id(2))) // none of them took the number
	must(t, j.Close())
	j = openIn(t, dir)
	if err := j.Submit(admitted(6, id(3)).batch()).Wait(); !errors.Is(err, handles.ErrInvalid) {
		t.Errorf("a number of an earlier life: %v, want invalid", err)
	}
	if rep := sound(t, j); rep.Entries != 2 || rep.Runs != 2 {
		t.Errorf("report %+v", rep)
	}
}

// One batch that cannot be written spoils no other of its group, and nothing of
// it stays.
func TestS3_44_OneBadBatch(t *testing.T) {
	t.Parallel()
	j := openIn(t, t.TempDir())
	release := hold(t, j)
	a, b, c := admitted(1, id(1)), admitted(2, id(2)), admitted(3, id(3))
	a.key, b.key, c.key = "k", "k", "other"
	ca, cb, cc := j.Submit(a.batch()), j.Submit(b.batch()), j.Submit(c.batch())
	release()
	if err := errors.Join(ca.Wait(), cc.Wait()); err != nil {
		t.Error(err)
	}
	if err := cb.Wait(); !errors.Is(err, handles.ErrPersistence) {
		t.Errorf("the second use of a key: %v, want persistence_failed", err)
	}
	if _, err := j.Run(id(2)); !errors.Is(err, handles.ErrNotFound) {
		t.Errorf("the refused run: %v, want not found", err)
	}
	if rep := sound(t, j); rep.Runs != 2 || rep.Entries != 2 || rep.Keys != 2 {
		t.Errorf("report %+v", rep)
	}
	if k, ok, err := j.Key("k"); err != nil || !ok || k != (Key{"k", "print of k", id(1)}) {
		t.Errorf("key %+v %v %v", k, ok, err)
	}
}

// A run that has ended does not live again.
func TestS4_06_EndIsFinal(t *testing.T) {
	t.Parallel()
	j, err := Open(t.TempDir(), Options{})
	must(t, err)
	defer j.Close()
	commit(t, j, admitted(1, id(1)), ended(2, id(1)))
	s := admitted(3, id(1))
	if err := j.Submit(s.batch()).Wait(); !errors.Is(err, handles.ErrPersistence) {
		t.Errorf("admitted after the end: %v", err)
	}
	late := ended(4, id(1)) // a change of the record after the end is one
	late.status = handles.Killed
	commit(t, j, late)
	if r, err := j.Run(id(1)); err != nil || r.Live || r.Status != "killed" || r.Seq != 4 {
		t.Errorf("run %+v %v", r, err)
	}
	sound(t, j)
}

// S3-53: Close waits for all that was submitted; after it everything is refused.
func TestS3_53_CloseWhileBusy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	var commits []*Commit
	var wg sync.WaitGroup
	for range 4 { // readers are in the way
		wg.Go(func() {
			for {
				if _, _, err := j.List(Filter{}); err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("list: %v", err)
					}
					return
				}
			}
		})
	}
	for i := range 500 {
		commits = append(commits, j.Submit(admitted(int64(i+1), id(i)).batch()))
	}
	wg.Go(func() { j.Close() })
	must(t, j.Close())
	for i, c := range commits {
		select {
		case <-c.Done():
			must(t, c.Err())
		default:
			t.Fatalf("batch %d is open after Close", i)
		}
	}
	wg.Wait()
	if err := j.Submit(admitted(501, id(501)).batch()).Wait(); !errors.Is(err, ErrClosed) {
		t.Errorf("submit after Close: %v", err)
	}
	for name, read := range reads(j) {
		if err := read(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	j = openIn(t, dir)
	if rep := sound(t, j); rep.Runs != 500 {
		t.Errorf("%d runs, want 500", rep.Runs)
	}
}
