// Package supervisor owns commands: it admits, starts, captures, awaits and
// ends them, keeps the journal of what happened, and takes everything up again
// after a crash. A program may embed it; procsupd serves it over a socket.
//
// State is the fold of the journal. It changes under one lock, in the order of
// the journal's numbers, and is told to anybody only once it is durable.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/keeper"
	"procsup/supervisor/ready"
)

// A Config says where a Supervisor keeps its state and what it may use. Dir
// alone is enough.
type Config struct {
	// Dir is the state directory: journal, spools. It is made 0700 if missing.
	Dir string
	// Keeper is the supervisor's end of the keeper's socket. nil: embedded,
	// without a keeper; commands then do not survive this process, and Open
	// takes the lock on Dir itself.
	Keeper *keeper.Link
	// Handover is what the keeper held when it started this process.
	Handover *keeper.Handover
	// Log gets what an operator should know; nil drops it.
	Log *slog.Logger
	// MaxLive is how many handles may run at once, 0 = as many as descriptors
	// allow.
	MaxLive int
	// SessionLive is how many of them one session may have, 0 = 1,000.
	SessionLive int
	// Quota bounds the bytes of all spools; 0 = 10 GiB or a tenth of the disk,
	// whichever is less; < 0 = no limit.
	Quota int64
	// Retention is how long records and output of runs that have ended are
	// kept, 0 = 7 days; < 0 = for ever.
	Retention time.Duration
	// UnverifiableGrace is how long a run whose process can neither be seen nor
	// ruled out after a crash counts as running before it is lost, 0 = 5 min.
	UnverifiableGrace time.Duration
	// Exclusive promises that this process starts children only through here:
	// orphans are then recognised by exclusion. procsupd does.
	Exclusive bool
	// Hooks lets tests stop at named points; nil in production.
	Hooks *Hooks
}

// DefaultSession is the session of whoever names none.
const DefaultSession = "default"

// A Supervisor owns the commands of one state directory. Close it.
type Supervisor struct {
	cfg     Config
	log     *slog.Logger
	journal *journal.Journal
	lock    *os.File // nil: the keeper holds it
	null    *os.File // /dev/null, for all commands
	sub     *pgroup.Subreaper
	grow    *capture.Grow
	quota   *capture.Quota
	limits  limits
	files   *ready.Files // one watcher for all runs
	started time.Time

	fence     int            // generation of this supervisor, from 1
	keeperPID int            // 0: none
	owners    sync.WaitGroup // one for each live run
	chores    sync.WaitGroup // keepHouse
	heap      heapRest

	cgroupHome func() string // where those of earlier supervisors are; "" = nowhere

	// left are the processes that carry a token or mark of ours, found by one scan for
	// all runs that recover knows no process of.
	left func() pgroup.Left

	leaders  pidSet           // commands that are the keeper's children
	siblings *pgroup.Siblings // with all others that are; nil: no keeper

	life   context.Context // ends when this process goes away and runs live on
	depart context.CancelFunc

	mu       sync.Mutex // guards what follows; the journal's order is made under it
	seq      int64      // last number given
	runs     map[handles.ID]*run
	names    map[nameKey]*run
	keys     map[string]*run // idempotency keys of the runs that this process started and that have not ended
	keyEnds  int             // how many went out of keys
	sessions map[string]*session
	readers  map[handles.Exec]bool // processes that read inboxes and are watched
	owed     int                   // ends in all inboxes
	used     int                   // descriptors of live handles
	draining bool                  // no new work
	closing  bool
}

type nameKey struct{ session, name string }

// Open takes the state directory, recovers what was running, and returns once
// every run is either owned again or settled. It fails with handles.ErrLocked,
// ErrNotOwner or ErrSchemaNewer in the chain and has then touched nothing.
func Open(ctx context.Context, cfg Config) (*Supervisor, error) {
	cfg = cfg.withDefaults()
	s := &Supervisor{
		cfg: cfg, log: cfg.Log, started: time.Now(), grow: capture.NewGrow(8), files: ready.NewFiles(),
		runs: map[handles.ID]*run{}, names: map[nameKey]*run{}, keys: map[string]*run{},
		sessions: map[string]*session{}, readers: map[handles.Exec]bool{},
	}
	if err := s.takeLock(); err != nil {
		return nil, err
	}
	var err error
	if s.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		s.unlock()
		return nil, fmt.Errorf("open state %s: %w", cfg.Dir, err)
	}
	if s.journal, err = journal.Open(cfg.Dir, journal.Options{Trouble: func(err error) { s.log.Error("journal", "err", err) }}); err != nil {
		s.unlock()
		return nil, err
	}
	for _, w := range s.journal.Warnings() {
		s.log.Warn("journal", "err", w)
	}
	s.seq = s.journal.LastSeq()
	s.life, s.depart = context.WithCancel(context.Background())
	s.fence = 1
	if cfg.Handover != nil {
		s.fence, s.keeperPID = cfg.Handover.Generation, cfg.Handover.KeeperPID
	}
	s.left = sync.OnceValue(pgroup.FindLeft)
	if s.keeperPID != 0 {
		s.siblings = pgroup.NewSiblings(s.keeperPID, s.leaders.has)
	}
	s.cgroupHome = sync.OnceValue(func() string {
		home, _ := platform.FindCgroup() // the same for all that is taken up
		return home.Base
	})
	s.quota = newQuota(cfg)
	s.limits = readLimits(cfg)
	if s.sub, err = pgroup.BecomeSubreaper(cfg.Exclusive); err != nil {
		s.log.Warn("not a subreaper", "err", err)
	}
	err = s.recoverSessions()
	if err == nil {
		err = s.recover(ctx)
	}
	if err != nil {
		s.journal.Close()
		s.unlock()
		return nil, err
	}
	s.resumeSessions()
	s.chores.Add(1)
	go s.keepHouse() // ends with life; Close waits for it
	return s, nil
}

// takeLock takes the lock of the state directory unless the keeper has it.
func (s *Supervisor) takeLock() (err error) {
	s.lock, err = journal.Lock(s.cfg.Dir)
	switch {
	case s.cfg.Keeper == nil:
		return err
	case err == nil: // the keeper's lock is of a directory that is gone
		s.log.Error("the state directory was replaced while the daemon ran", "state", s.cfg.Dir)
	case !errors.Is(err, handles.ErrLocked):
		return err
	}
	return nil
}

func (cfg Config) withDefaults() Config {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.SessionLive == 0 {
		cfg.SessionLive = 1000
	}
	if cfg.Retention == 0 {
		cfg.Retention = defaultRetention
	}
	if cfg.UnverifiableGrace == 0 {
		cfg.UnverifiableGrace = defaultUnverifiableGrace
	}
	return cfg
}

func (s *Supervisor) unlock() {
	if s.null != nil {
		s.null.Close()
	}
	if s.lock != nil {
		s.lock.Close()
	}
}

func newQuota(cfg Config) *capture.Quota {
	n := cfg.Quota
	if n < 0 {
		return nil
	}
	if n == 0 {
		n = 10 << 30
		if free, err := platform.DiskSize(cfg.Dir); err == nil {
			n = min(n, free/10)
		}
	}
	return capture.NewQuota(n, filepath.Join(cfg.Dir, "handles"))
}

// Close lets go of everything. With a keeper commands live on and the next
// supervisor takes them up; without one they are ended first. No call is
// answered any more.
func (s *Supervisor) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil
	}
	s.closing = true
	s.mu.Unlock()
	if s.cfg.Keeper == nil {
		s.stopAll(decision{kind: "shutdown", cause: handles.CauseShutdown, by: "host", reason: "the program that embeds procsup ends"})
		s.owners.Wait()
	}
	s.depart()
	if s.cfg.Keeper == nil {
		s.owners.Wait()
	} // with a keeper an owner in the middle of a ladder is cut short, as by a crash
	s.files.Close()
	s.mu.Lock()
	if len(s.runs)+s.owed == 0 {
		s.journal.SetReserve(0) // kept over Close
	}
	s.mu.Unlock()
	err := s.journal.Close() // cuts a removal short
	s.chores.Wait()
	s.unlock()
	return err
}

// stopAll decides to stop every live run.
func (s *Supervisor) stopAll(d decision) []*run {
	s.mu.Lock()
	live := make([]*run, 0, len(s.runs))
	for _, r := range s.runs {
		live = append(live, r)
	}
	s.mu.Unlock()
	for _, r := range live {
		s.decide(r, d)
	}
	return live
}

// dir is where the spools of a run are.
func (s *Supervisor) dir(id handles.ID) string {
	return filepath.Join(s.cfg.Dir, "handles", string(id))
}

// next gives the next number of the journal. s.mu is held.
func (s *Supervisor) next() int64 {
	s.seq++
	return s.seq
}
