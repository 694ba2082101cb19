package capture

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// quotaFloor is what a running command keeps beyond its head when only running
// commands are left to take from.
const quotaFloor = 1 << 20

// A Quota limits the bytes that many logs keep together, also those that earlier
// processes left. Past it the spools of the commands that ended longest ago are
// removed, whole; their indexes stay and tell what is gone. When none is left,
// running commands that write lose their middle. No command is held up for it.
//
// What it costs does not grow with the number of logs: which of them ended longest
// ago is looked up in their folders when there is too much.
type Quota struct {
	// OnEvict, when set before use, is called with the folder of each log
	// whose spools were removed, one call at a time.
	OnEvict func(dir string)

	max   int64
	base  string
	began time.Time
	used  atomic.Int64
	over  atomic.Bool // nothing ended is left to remove

	removing sync.Mutex // held while one log's files are removed

	mu       sync.Mutex
	logs     map[string]quotaLog // of this process, until they are collected
	ended    []endedLog          // oldest first: what the last look found
	more     bool                // a log has ended since the last look began
	evicting bool                // a removal is under way, or none may begin
	idle     sync.WaitGroup
}

type quotaLog struct {
	log     weak.Pointer[Log] // to tell readers that are still there
	running bool
}

type endedLog struct {
	dir string
	at  time.Time
}

// NewQuota returns a quota of max bytes, max > 0, for logs whose folders are in
// the folder base. Nothing is removed before Measure has returned: until then it
// is not known which logs of earlier processes are taken up again.
func NewQuota(max int64, base string) *Quota {
	return &Quota{max: max, base: base, began: time.Now(), logs: map[string]quotaLog{}, evicting: true}
}

// Used returns the bytes kept now.
func (q *Quota) Used() int64 { return q.used.Load() }

// Remove deletes the folder of a log that has ended; with a nil Quota too.
func (q *Quota) Remove(dir string) error {
	if q == nil {
		return os.RemoveAll(dir)
	}
	q.removing.Lock()
	defer q.removing.Unlock()
	q.mu.Lock()
	l := q.logs[dir].log.Value()
	q.mu.Unlock()
	q.used.Add(-takeKept(dir, l))
	return os.RemoveAll(dir)
}

// takeKept is what a log that has ended keeps, and from now on no more; l is nil
// when it is gone from memory.
func takeKept(dir string, l *Log) int64 {
	if l != nil {
		return l.kept.Swap(0)
	}
	kept, _ := keptIn(dir)
	return kept
}

// Wait returns when no removal is under way.
func (q *Quota) Wait() { q.idle.Wait() }

// add takes in a log, and the bytes that it has if it was taken up again.
func (q *Quota) add(l *Log) {
	if q == nil {
		return
	}
	q.used.Add(l.kept.Load())
	if l.cfg.Dir == "" {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.logs[l.cfg.Dir] = quotaLog{log: weak.Make(l), running: true}
	runtime.AddCleanup(l, q.collected, l.cfg.Dir)
}

// collected is told that a log of a folder is gone from memory.
func (q *Quota) collected(dir string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.logs[dir].log.Value() == nil { // else another took the folder up
		delete(q.logs, dir)
	}
}

// finish notes that l ended now, so that it can be removed. A log without a
// folder is gone.
func (q *Quota) finish(l *Log) {
	if q == nil {
		return
	}
	if l.cfg.Dir == "" {
		q.used.Add(-l.kept.Load())
		return
	}
	q.mu.Lock()
	q.logs[l.cfg.Dir], q.more = quotaLog{log: weak.Make(l)}, true
	if q.over.Swap(false) { // there is no older one
		q.ended = append(q.ended, endedLog{l.cfg.Dir, time.Now()})
	}
	q.mu.Unlock()
	q.check()
}

// check starts a removal when there is too much and none is under way.
func (q *Quota) check() {
	if q.used.Load() <= q.max || q.over.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.evicting {
		return
	}
	q.evicting = true
	q.idle.Add(1)
	go q.evict() // ends when there is room or nothing to remove; Wait waits for it
}

func (q *Quota) evict() {
	defer q.idle.Done()
	for {
		q.mu.Lock()
		none := len(q.ended) == 0
		if none {
			q.more = false
		}
		q.mu.Unlock()
		var found []endedLog
		if none && q.used.Load() > q.max {
			found = q.look()
		}
		q.mu.Lock()
		q.ended = append(q.ended, found...)
		if len(q.ended) == 0 && q.more {
			q.mu.Unlock()
			continue
		}
		if q.used.Load() <= q.max || len(q.ended) == 0 {
			q.over.Store(q.used.Load() > q.max)
			q.evicting = false
			q.mu.Unlock()
			return
		}
		e := q.ended[0]
		q.ended = q.ended[1:]
		l := q.logs[e.dir]
		q.mu.Unlock()
		if !l.running && q.free(e.dir, l.log.Value()) == nil && q.OnEvict != nil {
			q.OnEvict(e.dir)
		}
	}
}

// free removes what a log keeps, after its index says so; l is nil when nobody
// can be reading it.
func (q *Quota) free(dir string, l *Log) error {
	q.removing.Lock()
	defer q.removing.Unlock()
	q.used.Add(-takeKept(dir, l)) // also of what cannot be removed: it is not tried again and again
	if l != nil {
		for _, s := range l.streams {
			s.mu.Lock()
			s.holes = s.holes.add(Range{0, s.total.Load()})
			s.missing = lossEvicted.String()
			s.mu.Unlock()
		}
	}
	r, err := Reopen(dir)
	if err != nil {
		return err
	}
	for _, s := range r.streams {
		r.index.gap(s.src, Range{0, s.total.Load()}, lossEvicted)
	}
	r.index.idle()
	for _, s := range r.streams {
		if err := s.spool.remove(); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes all files of the spool.
func (s *spool) remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range s.segs {
		if err := os.Remove(seg.path); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove spool: %w", err)
		}
	}
	return nil
}

// keep changes the number of bytes the log keeps.
func (l *Log) keep(n int64) {
	l.kept.Add(n)
	if q := l.cfg.Quota; q != nil && !l.reading {
		if q.used.Add(n) > q.max && n > 0 {
			q.check()
		}
	}
}

// limit returns how many bytes a stream may keep now, < 0 = any number.
func (l *Log) limit(kept int64) int64 {
	limit := l.cfg.MaxOutput
	q := l.cfg.Quota
	if q == nil || !q.over.Load() {
		return limit
	}
	over := q.used.Load() - q.max
	if over <= 0 {
		q.over.Store(false)
		return limit
	}
	less := max(kept-over, l.cfg.Head+quotaFloor)
	if limit < 0 {
		return less
	}
	return min(limit, less)
}
