package journal

import (
	"encoding/json"
	"fmt"
	"time"

	"procsup/handles"
)

// A Commit is the outcome of a Batch, in time.
type Commit struct {
	done chan struct{}
	err  error
}

// Done is closed when the batch is durable or refused.
func (c *Commit) Done() <-chan struct{} { return c.done }

// Wait blocks until Done and returns Err.
func (c *Commit) Wait() error {
	<-c.done
	return c.err
}

// Err is nil when the batch is durable. When it is not, errors.Is tells
// handles.ErrPersistence: nothing of it stays; with handles.ErrOutcomeUnknown
// besides, it may come back if the process dies before the next commit. It is
// nil too before Done.
func (c *Commit) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

func (c *Commit) settle(err error) {
	c.err = err
	close(c.done)
}

// An item is what the writer has to do: a batch, or a job of the journal's own.
type item struct {
	batch  Batch
	commit *Commit
	job    func(*writer) error
}

// Submit hands b to the writer and returns at once: it does no I/O and never
// waits. Batches are committed in the order of Submit, as many in one
// transaction as are waiting. The caller leaves what is in b alone until Done.
// A batch that could not be folded again is refused with handles.ErrInvalid.
func (j *Journal) Submit(b Batch) *Commit {
	c := &Commit{done: make(chan struct{})}
	if err := j.enqueue(item{batch: b, commit: c}); err != nil {
		c.settle(err)
	}
	return c
}

// enqueue is the one way to the writer.
func (j *Journal) enqueue(it item) error {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closing {
		return ErrClosed
	}
	if it.job == nil {
		last, err := checkBatch(&it.batch, j.submitted, now)
		if err == nil && j.opt.Verify {
			err = verify(&it.batch)
		}
		if err != nil {
			return err
		}
		j.submitted = last
	}
	j.queue = append(j.queue, it)
	select {
	case j.wake <- struct{}{}:
	default: // the writer has been told
	}
	return nil
}

// do has the writer call f between two commits and waits for it.
func (j *Journal) do(f func(*writer) error) error {
	c := &Commit{done: make(chan struct{})}
	if err := j.enqueue(item{job: f, commit: c}); err != nil {
		return err
	}
	return c.Wait()
}

// checkBatch refuses what could not be folded again: numbers out of order, a
// run or a key without its entry. It returns the last number used.
func checkBatch(b *Batch, last int64, now time.Time) (int64, error) {
	if len(b.Entries) == 0 {
		return 0, invalid("a batch without entries")
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		if e.Seq <= last {
			return 0, invalid("entry %d after %d", e.Seq, last)
		}
		last = e.Seq
		if e.At.IsZero() {
			e.At = now
		}
	}
	for i := range b.Runs {
		r := &b.Runs[i]
		if r.ID == "" || b.entryOf(r.ID, r.Seq) == nil {
			return 0, invalid("run %q without its entry %d", r.ID, r.Seq)
		}
	}
	for i := range b.Sessions {
		s := &b.Sessions[i]
		if s.Name == "" || s.Seq == 0 || b.entryOf(SessionEntry(s.Name), s.Seq) == nil {
			return 0, invalid("session %q without its entry %d", s.Name, s.Seq)
		}
	}
	for _, k := range b.Keys {
		if k.Run == "" || b.entryOf(k.Run, 0) == nil {
			return 0, invalid("key %q without an entry of its run %q", k.Key, k.Run)
		}
	}
	return last, nil
}

func invalid(format string, args ...any) error {
	return &handles.Error{Code: handles.CodeInvalid, Message: "journal: " + fmt.Sprintf(format, args...)}
}

// entryOf is the entry of a run with that number, or with 0 its first one.
func (b *Batch) entryOf(run string, seq int64) *Entry {
	for i := range b.Entries {
		if e := &b.Entries[i]; e.Run == run && (seq == 0 || e.Seq == seq) {
			return e
		}
	}
	return nil
}

// keysOf are the keys that are written beside e, as JSON; "" = none. They are
// beside the first entry of their run.
func (b *Batch) keysOf(e *Entry) string {
	var pairs [][2]string
	for _, k := range b.Keys {
		if k.Run == e.Run && b.entryOf(k.Run, 0) == e {
			pairs = append(pairs, [2]string{k.Key, k.Fingerprint})
		}
	}
	if pairs == nil {
		return ""
	}
	text, _ := json.Marshal(pairs) // strings cannot fail
	return string(text)
}
