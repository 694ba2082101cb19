// Package capture keeps every byte a command writes.
//
// Each stream goes from a pipe to a spool file; the spool is the truth and its
// length is the offset. Bytes are never decoded, changed or split on the way
// in. On Linux they move by splice(2), so this process never holds the only
// copy of one: killed at any moment, it has either left a byte in the pipe or
// put it in the spool. Readers read the spool at their own pace, are woken by a
// bell that carries no data, and slow nobody, unless [Config].Window says so.
//
// A [Log] is one command's output: two [Stream]s and an index of when which
// bytes came. All methods of Log and Stream may be called from any goroutine.
package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Source names a stream of a command. With merged output both go to Stdout.
type Source uint8

// The two streams.
const (
	Stdout Source = iota
	Stderr
)

// String returns "stdout" or "stderr".
func (s Source) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// MarshalText makes a Source readable in JSON, also as a map key.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText accepts what MarshalText wrote.
func (s *Source) UnmarshalText(b []byte) error {
	switch string(b) {
	case "stdout":
		*s = Stdout
	case "stderr":
		*s = Stderr
	default:
		return fmt.Errorf("source %q: want stdout or stderr", b)
	}
	return nil
}

// Errors a caller may act on.
var (
	ErrExists           = errors.New("there is a log already")
	ErrClosed           = errors.New("log is closed")
	ErrEnded            = errors.New("stream has ended")
	ErrEndedBeforeMatch = errors.New("output ended before a match")
)

// Config says where a log lives and what it may cost. It is copied by Open.
type Config struct {
	// Dir gets the files stdout, stderr and index; it is created 0700 when
	// missing. Empty: spools without a name in os.TempDir, gone at Close.
	Dir string
	// MaxOutput is the bytes kept per stream, 0 = 1 GiB, < 0 = no limit. The
	// first Head bytes and the newest stay; what lies between is freed.
	MaxOutput int64
	// Head is the bytes kept from the start, 0 = 1 MiB, at most half of MaxOutput.
	Head int64
	// Window, when > 0, is how far in bytes a stream may run ahead of the
	// slowest Follower before its command has to wait. 0 = it never waits.
	Window int64
	// Grown is the budget for enlarged pipes, shared by many logs; nil = 4 of this log's own.
	Grown *Grow
	// Quota limits the kept bytes of many logs together; nil = no such limit.
	Quota *Quota
	// Published, if not nil, is told of each piece of output that can be read,
	// by who moves it: it must not wait.
	Published func(src Source, from, to int64)
	// Resume takes up the spools found in Dir instead of refusing them: for
	// Attach after a restart.
	Resume bool
}

const (
	defaultMax  = 1 << 30
	defaultHead = 1 << 20
	blockSize   = 4096 // holes are punched in multiples of it
)

// A Log is the output of one command. Close it.
type Log struct {
	cfg     Config
	epoch   time.Time // all times of the log are counted from here
	index   *index
	streams [2]*Stream

	reading bool // opened by Reopen
	kept    atomic.Int64

	rush    chan struct{} // closed when followers are waited for no more
	rushed  sync.Once
	mu      sync.Mutex
	pumps   []*pump
	settled bool // no pipe will come any more: Drain or Close was called
	closed  bool
}

// Open makes the log's folder, and AttachPipe the spool, so that whatever is wrong
// with the place shows before a command runs: the error names the path. ErrExists
// is in its chain when Dir holds a log's files already and Resume is off.
func Open(cfg Config) (*Log, error) {
	cfg = cfg.withDefaults()
	l := &Log{cfg: cfg, epoch: time.Now(), rush: make(chan struct{})}
	fresh := false
	var err error
	if cfg.Dir != "" {
		if fresh, err = makeDir(cfg.Dir); err != nil {
			return nil, err
		}
	}
	if l.index, err = openIndex(cfg, l.epoch, fresh); err != nil {
		return nil, err
	}
	l.index.gaps = l.gaps
	for src := range l.streams {
		l.streams[src] = newStream(l, Source(src))
	}
	if cfg.Resume {
		if err := l.resume(); err != nil {
			return nil, err
		}
	}
	cfg.Quota.add(l)
	return l, nil
}

// Reopen opens the log of a command that has ended, for reading: its streams
// have ended and take no pipe. Nothing is written unless the index is torn.
func Reopen(dir string) (*Log, error) {
	l := &Log{cfg: Config{Dir: dir, Resume: true}.withDefaults(), epoch: time.Now(), reading: true, rush: make(chan struct{})}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l.index = &index{path: filepath.Join(dir, "index"), epoch: l.epoch, mono: monotonic(), gaps: l.gaps}
	for src := range l.streams {
		l.streams[src] = newStream(l, Source(src))
	}
	if err := l.resume(); err != nil {
		return nil, err
	}
	l.settle()
	l.closed = true
	return l, nil
}

func (c Config) withDefaults() Config {
	if c.MaxOutput == 0 {
		c.MaxOutput = defaultMax
	}
	if c.Head <= 0 {
		c.Head = defaultHead
	}
	if c.MaxOutput > 0 {
		c.Head = min(c.Head, c.MaxOutput/2)
	}
	if c.Grown == nil {
		c.Grown = NewGrow(4)
	}
	return c
}

// makeDir creates dir 0700 and refuses what is in the way by name. fresh: it was
// not there, so nothing is in it.
func makeDir(dir string) (fresh bool, err error) {
	if os.Mkdir(dir, 0o700) == nil { // its parent is there: most of the time
		return true, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("make log folder %s: %w", dir, err)
	}
	return false, nil
}

// Pipe makes a pipe whose bytes go to src and returns the end the command
// writes to. The caller gives it to the command and closes its own copy, or
// the stream never ends.
func (l *Log) Pipe(src Source) (*os.File, error) {
	r, w, err := NewPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe for %v: %w", src, err)
	}
	if err := l.AttachPipe(src, r); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Attach is AttachPipe with r, the read end of a pipe, which it closes, also on
// error.
func (l *Log) Attach(src Source, r *os.File) error {
	in, err := takePipe(r)
	if err != nil {
		return fmt.Errorf("take pipe for %v: %w", src, err)
	}
	return l.AttachPipe(src, in)
}

// AttachPipe takes over a pipe and moves what comes out of it to src, behind the
// bytes that are there. It is closed at its end, by LetGo or by Close, and on
// error; a descriptor of the same pipe elsewhere (the keeper's) is not affected.
func (l *Log) AttachPipe(src Source, in *Pipe) error {
	s := l.streams[src]
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(s); err != nil {
		in.Close()
		return err
	}
	p, err := newPump(s, in, l.cfg.Grown)
	if err != nil {
		in.Close()
		return fmt.Errorf("watch pipe for %v: %w", src, err)
	}
	l.pumps = append(l.pumps, p)
	return nil
}

// pumpsOf returns the pumps of one stream.
func (l *Log) pumpsOf(s *Stream) (ps []*pump) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pumps {
		if p.s == s {
			ps = append(ps, p)
		}
	}
	return ps
}

// Refuse closes the pipes of a stream at once and leaves what is in them: who
// writes there gets SIGPIPE, as from any reader that went away. It is for
// output that is passed through to a reader that may leave.
func (l *Log) Refuse(src Source) {
	for _, p := range l.pumpsOf(l.streams[src]) {
		p.refuse.Store(true)
		p.stop()
	}
}

// open makes the spool of s exist. l.mu is held.
func (l *Log) open(s *Stream) error {
	if l.settled {
		return fmt.Errorf("%v: %w", s.src, ErrClosed)
	}
	if err := s.spool.create(l.cfg.Resume); err != nil {
		return err
	}
	s.use()
	return nil
}

// Stream returns the stream src. It stays readable after Close when the log
// has a folder.
func (l *Log) Stream(src Source) *Stream { return l.streams[src] }

// Path returns where the bytes of src are, "" for a log without a folder.
func (l *Log) Path(src Source) string { return l.streams[src].spool.path }

// Paths returns the paths of the streams that are in use.
func (l *Log) Paths() map[Source]string {
	m := make(map[Source]string)
	for src, s := range l.streams {
		if s.used() && s.spool.path != "" {
			m[Source(src)] = s.spool.path
		}
	}
	return m
}

// LastActivity returns when the last byte of either stream came, with a
// monotonic reading; the time of Open when none has.
func (l *Log) LastActivity() time.Time {
	a, b := l.streams[0].LastActivity(), l.streams[1].LastActivity()
	if a.After(b) {
		return a
	}
	return b
}

// Close is Stop and LetGo. It may be called again.
func (l *Log) Close() error {
	err := l.Stop()
	l.LetGo()
	return err
}

// Stop stops the pumps, after they have taken what is in the pipes at that
// moment, and closes all files, but not the pipes that are not at their end:
// until it is sure that nobody goes on with them, a writer should not find them
// closed. It may be called again.
func (l *Log) Stop() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	l.hurry()
	l.stop()
	var errs []error
	for _, s := range l.streams {
		s.wmu.Lock()
		s.settleSpool()
		s.spool.close()
		s.wmu.Unlock()
	}
	errs = append(errs, l.index.close())
	l.cfg.Quota.finish(l)
	return errors.Join(errs...)
}

// LetGo closes the pipes whose pumps have been stopped before their end.
func (l *Log) LetGo() {
	l.mu.Lock()
	pumps := l.pumps
	l.mu.Unlock()
	for _, p := range pumps {
		select {
		case <-p.done:
			_ = p.in.Close() // again for most: os.ErrClosed
		default:
		}
	}
}

// stop ends all pumps and, with them, the streams.
func (l *Log) stop() {
	l.mu.Lock()
	l.settled = true
	l.mu.Unlock()
	l.halt()
	l.settle()
}

// halt ends all pumps.
func (l *Log) halt() {
	l.mu.Lock()
	pumps := l.pumps
	l.mu.Unlock()
	for _, p := range pumps {
		p.stop()
	}
	for _, p := range pumps {
		<-p.done
	}
}

// gaps returns a record for each gap of the streams.
func (l *Log) gaps() (recs []Record) {
	for _, s := range l.streams {
		e := s.Extent()
		for _, h := range e.Omitted {
			r := l.index.record(s.src, h.From, h.Len(), l.now())
			r.Omitted, r.why = true, lossNamed(e.Missing)
			recs = append(recs, r)
		}
	}
	return recs
}

// settle marks every stream as ended.
func (l *Log) settle() {
	l.mu.Lock()
	l.settled = true
	l.mu.Unlock()
	for _, s := range l.streams {
		s.end()
	}
}

// now returns the nanoseconds since the log was opened.
func (l *Log) now() int64 { return int64(time.Since(l.epoch)) }
