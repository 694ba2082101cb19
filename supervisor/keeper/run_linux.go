package keeper

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

const (
	maxDeaths    = 5 // in a row, before ready
	defaultRetry = 30 * time.Second
	defaultGrace = 30 * time.Second
)

// A keeper is the whole state of the process. Only the goroutine of Keep
// touches it.
type keeper struct {
	cfg  Config
	log  *slog.Logger
	poll *poller // everything the keeper waits for

	runs  map[string]*run
	last  int32 // number of the run registered last
	by    map[int32]*run
	pipes int     // descriptors of all runs' pipes
	marks uint64  // a run's mark is this and its number, unless it came with one
	exits int64   // ends seen so far
	ends  *poller // pidfds of adopted commands, itself in poll
	quiet *poller // pidfds of the living supervisor's commands, not looked at before it died
	rest  []*aftermath

	sup      *supervisor // nil: none lives
	gen      int
	exe      string // what the next supervisor executes
	goodExe  string // what the last one that was ready executed
	upgraded string // what demanded that this keeper execute it
	deaths   int    // in a row before ready
	startAt  time.Time
	told     bool // Config.Ready was called

	stopBy   time.Time // of a shutdown; zero: none was asked for
	late     bool      // the supervisor overran that
	scanned  time.Time // when the children were last listed
	scanAt   time.Time // when they are to be listed next; zero: not
	beatAt   time.Time // of Config.Beat; zero: never
	heirBy   time.Time // until when the execution of k.exe waits for what is unclear; zero: none is to be
	finished bool
	code     int

	lock  int   // Config.Lock; -1: none
	files []int // Config.Files

	recv   receiver
	wakeFD int // eventfd of flags
	flags  atomic.Uint32
}

// What a signal asks for, as bits of keeper.flags.
const (
	flagChild uint32 = 1 << iota
	flagStop
	flagPoke
	flagReplace
)

// What an event is about, as tag.what in keeper.poll.
const (
	aboutSignals int32 = iota
	aboutSocket        // which: the generation
	aboutSupervisor
	aboutEnds
	aboutRest
)

// Keep is the keeper process: it makes this process a child subreaper, starts the
// supervisor and keeps one running until a supervisor has reported that it is
// done (0), or a shutdown took longer than Grace (1). TERM, INT and HUP ask for
// a shutdown, and so does the end of ctx; SIGUSR1 ends a wait after a crash
// loop, SIGUSR2 asks the supervisor to make place for another. With an Estate
// it goes on where the keeper before it ended.
//
// The process should do nothing else: all its children are reaped. It takes
// over the signals above.
func Keep(ctx context.Context, cfg Config) (code int) {
	k := &keeper{cfg: cfg, log: cfg.Log, runs: map[string]*run{}, by: map[int32]*run{}, wakeFD: -1, lock: -1}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	if err := k.open(); err != nil {
		k.log.Error("keeper", "err", err)
		k.close()
		return 1
	}
	defer k.close()
	defer k.listen(ctx)()
	k.startAt = time.Now()
	if cfg.Estate != nil {
		k.inherit(&cfg.Estate.body)
	}
	k.loop()
	runtime.KeepAlive(cfg.Lock) // a finalizer would close it
	runtime.KeepAlive(cfg.Files)
	return k.code
}

func (k *keeper) open() (err error) {
	if k.cfg.Retry <= 0 {
		k.cfg.Retry = defaultRetry
	}
	if k.cfg.Grace <= 0 {
		k.cfg.Grace = defaultGrace
	}
	if k.exe = k.cfg.Exe; k.exe == "" {
		k.exe = ownImage
	}
	k.goodExe = k.exe
	if err := k.numbers(); err != nil {
		return err
	}
	if len(k.cfg.Supervisor) == 0 {
		return errors.New("no supervisor to start")
	}
	if k.cfg.Pulse > 0 && k.cfg.Beat != nil {
		k.beatAt = time.Now()
	}
	platform.SetName(nameKeeper)
	runtime.GOMAXPROCS(min(2, runtime.NumCPU())) // one for the loop, one for signals
	debug.SetGCPercent(20)                       // collects from 800 KiB on, where 100 would let 4 MiB pile up
	debug.FreeOSMemory()                         // what the program's init left behind
	if err := platform.SetSubreaper(); err != nil {
		return err
	}
	var b [8]byte
	platform.Random(b[:])
	k.marks = 1<<62 | binary.NativeEndian.Uint64(b[:])>>3<<1 // far from any limit that somebody sets
	if k.poll, err = newWaiter(); err != nil {
		return err
	}
	if k.ends, err = newPoller(); err != nil {
		return err
	}
	if k.quiet, err = newPoller(); err != nil {
		return err
	}
	if k.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("create eventfd: %w", err)
	}
	return errors.Join(
		k.poll.add(k.wakeFD, unix.EPOLLIN, tag{aboutSignals, 0}),
		k.poll.add(k.ends.fd, unix.EPOLLIN, tag{aboutEnds, 0}))
}

// numbers finds out the descriptors of the files in the configuration.
func (k *keeper) numbers() error {
	number := func(f *os.File) (n int, err error) {
		rc, err := f.SyscallConn() // Fd would make a socket blocking
		if err == nil {
			err = rc.Control(func(fd uintptr) { n = int(fd) })
		}
		return n, err
	}
	for _, f := range k.cfg.Files {
		n, err := number(f)
		if err != nil {
			return err
		}
		k.files = append(k.files, n)
	}
	if k.cfg.Lock == nil {
		return nil
	}
	n, err := number(k.cfg.Lock)
	k.lock = n
	return err
}

func (k *keeper) close() {
	for _, r := range k.runs {
		r.release()
	}
	if k.sup != nil {
		k.sup.close()
	}
	for _, a := range k.rest {
		a.close()
	}
	for _, p := range []*poller{k.ends, k.quiet, k.poll} {
		if p != nil {
			p.close()
		}
	}
	if k.wakeFD >= 0 {
		_ = unix.Close(k.wakeFD)
	}
}

// wake sets a flag and wakes the loop; any goroutine may call it.
func (k *keeper) wake(flag uint32) {
	k.flags.Or(flag)
	_, _ = unix.Write(k.wakeFD, binary.NativeEndian.AppendUint64(nil, 1)) // eventfd(2)
}

// listen turns signals and the end of ctx into flags until the returned
// function is called, which waits for its goroutine.
func (k *keeper) listen(ctx context.Context) (stop func()) {
	child := make(chan os.Signal, 1) // a channel of its own: a storm of these drops no others
	other := make(chan os.Signal, 16)
	signal.Notify(child, unix.SIGCHLD)
	signal.Notify(other, unix.SIGTERM, unix.SIGINT, unix.SIGUSR1, unix.SIGUSR2)
	if !signal.Ignored(unix.SIGHUP) { // nohup
		signal.Notify(other, unix.SIGHUP)
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() { // ends by stop, which waits for it
		defer close(done)
		over := ctx.Done()
		for {
			select {
			case <-child:
				k.wake(flagChild)
			case s := <-other:
				k.wake(k.flagOf(s))
			case <-over:
				over = nil
				k.wake(flagStop)
			case <-quit:
				return
			}
		}
	}()
	return func() {
		signal.Stop(child)
		signal.Stop(other)
		close(quit)
		<-done
	}
}

func (k *keeper) flagOf(s os.Signal) uint32 {
	switch s.(syscall.Signal) {
	case unix.SIGUSR1:
		return flagPoke
	case unix.SIGUSR2:
		return flagReplace
	case unix.SIGHUP:
		if k.cfg.ReplaceOnHUP {
			return flagReplace
		}
	}
	return flagStop
}

func (k *keeper) loop() {
	buf := make([]unix.EpollEvent, 64)
	for {
		k.timers()
		if k.finished {
			return
		}
		for _, ev := range k.poll.wait(buf, k.next()) {
			k.event(tag{ev.Fd, ev.Pad}, ev.Events)
		}
	}
}

func (k *keeper) event(t tag, events uint32) {
	switch t.what {
	case aboutSignals:
		k.signals()
	case aboutSocket:
		if k.sup != nil && k.sup.is(t.which) {
			k.socket(events)
		}
	case aboutSupervisor:
		if k.sup != nil && k.sup.is(t.which) {
			k.died()
		}
	case aboutEnds:
		k.sawEnds()
	case aboutRest:
		k.lookAgain()
	}
}

func (k *keeper) signals() {
	var b [8]byte
	_, _ = unix.Read(k.wakeFD, b[:])
	f := k.flags.Swap(0)
	if f&flagChild != 0 {
		k.sawEnds() // first: then they are known
		k.blind()
		k.lookAgain()
		k.orphans()
	}
	if f&flagPoke != 0 && !k.startAt.IsZero() {
		k.startAt = time.Now()
	}
	if f&flagReplace != 0 {
		k.ask(message{Kind: kindReplace})
	}
	if f&flagStop != 0 {
		k.shutdown()
	}
}

// next is when timers has something to do; zero: never.
func (k *keeper) next() time.Time {
	var t time.Time
	sooner := func(u time.Time) {
		if !u.IsZero() && (t.IsZero() || u.Before(t)) {
			t = u
		}
	}
	sooner(k.startAt)
	sooner(k.stopBy)
	sooner(k.scanAt)
	sooner(k.beatAt)
	sooner(k.heirBy)
	for _, r := range k.runs {
		sooner(r.lostAt)
	}
	if k.sup != nil {
		sooner(k.sup.killAt)
		sooner(k.sup.waitTill)
		sooner(k.sup.sendAt)
	}
	for _, a := range k.rest {
		sooner(a.again)
	}
	return t
}

func (k *keeper) timers() {
	now := time.Now()
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	if due(k.scanAt) {
		k.orphans()
	}
	if due(k.beatAt) {
		k.cfg.Beat()
		k.beatAt = now.Add(k.cfg.Pulse)
	}
	if due(k.heirBy) || !k.heirBy.IsZero() && len(k.rest) == 0 {
		k.handToHeir()
	}
	k.loseUnreaped(now)
	for _, a := range k.rest {
		if due(a.again) {
			k.lookAgain()
			break
		}
	}
	if k.sup != nil && due(k.sup.sendAt) {
		k.flush()
	}
	if k.sup != nil && due(k.sup.waitTill) {
		k.handOver()
	}
	if k.sup != nil && due(k.sup.killAt) {
		k.sup.kill()
		k.sup.killAt = now.Add(time.Minute)
	}
	if due(k.stopBy) {
		k.overdue()
	}
	if due(k.startAt) && !k.finished {
		k.startAt = time.Time{}
		k.start()
	}
}
