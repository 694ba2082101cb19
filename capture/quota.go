package capture

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// quotaFloor is what a running command keeps beyond its head when only running
// commands are left to take from.
const quotaFloor = 1 << 20

// A Quota limits the bytes that many logs keep together. Past it the spools of
// the commands that ended longest ago are removed, whole; their indexes stay
// and tell what is gone. When none is left, running commands that write lose
// their middle. No command is held up for it.
type Quota struct {
	// OnEvict, when set before use, is called with the folder of each log
	// whose spools were removed, one call at a time.
	OnEvict func(dir string)

	max  int64
	used atomic.Int64
	over atomic.Bool // nothing ended is left to remove

	mu       sync.Mutex
	ended    []endedLog // oldest first
	evicting bool
	idle     sync.WaitGroup
}

type endedLog struct {
	dir  string
	kept int64
	at   time.Time
	log  weak.Pointer[Log] // to tell readers that are still there
}

// NewQuota returns a quota of max bytes, max > 0.
func NewQuota(max int64) *Quota { return &Quota{max: max} }

// Used returns the bytes kept now.
func (q *Quota) Used() int64 { return q.used.Load() }

// Known tells the quota of a log that an earlier process has left: its folder,
// the bytes it keeps and when its command ended.
func (q *Quota) Known(dir string, kept int64, ended time.Time) {
	q.used.Add(kept)
	q.insert(endedLog{dir: dir, kept: kept, at: ended})
	q.check()
}

// Forget takes a removed log's folder out of the account.
func (q *Quota) Forget(dir string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = slices.DeleteFunc(q.ended, func(e endedLog) bool {
		if e.dir == dir {
			q.used.Add(-e.kept)
		}
		return e.dir == dir
	})
}

// Wait returns when no removal is under way.
func (q *Quota) Wait() { q.idle.Wait() }

func (q *Quota) insert(e endedLog) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, _ := slices.BinarySearchFunc(q.ended, e, func(a, b endedLog) int {
		return cmp.Compare(a.at.UnixNano(), b.at.UnixNano())
	})
	q.ended = slices.Insert(q.ended, i, e)
	q.over.Store(false)
}

// add takes in the bytes of a log that was taken up again.
func (q *Quota) add(l *Log) {
	if q != nil {
		q.used.Add(l.kept.Load())
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
	q.insert(endedLog{dir: l.cfg.Dir, kept: l.kept.Load(), at: time.Now(), log: weak.Make(l)})
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
		if q.used.Load() <= q.max || len(q.ended) == 0 {
			q.over.Store(len(q.ended) == 0)
			q.evicting = false
			q.mu.Unlock()
			return
		}
		e := q.ended[0]
		q.ended = q.ended[1:]
		q.mu.Unlock()
		if removeSpools(e) == nil && q.OnEvict != nil {
			q.OnEvict(e.dir)
		}
		q.used.Add(-e.kept)
	}
}

// removeSpools frees what a log keeps, after its index says so.
func removeSpools(e endedLog) error {
	if l := e.log.Value(); l != nil {
		for _, s := range l.streams {
			s.mu.Lock()
			s.holes = s.holes.add(Range{0, s.total.Load()})
			s.missing = lossEvicted.String()
			s.mu.Unlock()
		}
	}
	l, err := Reopen(e.dir)
	if err != nil {
		return err
	}
	for _, s := range l.streams {
		l.index.gap(s.src, Range{0, s.total.Load()}, lossEvicted)
	}
	l.index.idle()
	for _, s := range l.streams {
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
