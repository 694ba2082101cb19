package keeper

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// A supervisor is the living supervisor process and the state of the talk
// with it.
type supervisor struct {
	gen, pid  int
	pidfd     int
	sock      int // -1: it closed its end
	exe       string
	program   platform.Program // what it executes
	since     time.Time
	out       []packet  // waits for room in its buffer
	hello     bool      // it has answered ours
	todo      []*run    // to be handed over
	sent      []*run    // in the page that is not acknowledged yet
	sentFDs   int       // descriptors in it
	pidfds    bool      // it takes pidfds in the hand-over
	demands   bool      // it is too new for us
	page      uint64    // that page's number
	waitTill  time.Time // the hand-over waits for pending runs until then
	open      bool      // the hand-over is complete
	ready     bool
	replacing bool // it asked to be followed by another
	marks     bool // it starts commands with their runs' marks
	done      bool // it has ended all there is
	refused   *refusal
	killAt    time.Time
	sendAt    time.Time // send again then
}

// A refusal is a supervisor's word that another one could not serve either.
type refusal struct {
	code int
	why  string
}

type packet struct {
	b   []byte
	fds []int
}

func (s *supervisor) is(gen int32) bool { return s.gen == int(gen) }

func (s *supervisor) kill() { _ = platform.SignalPidfd(s.pidfd, unix.SIGKILL) }

func (s *supervisor) close() {
	_ = unix.Close(s.pidfd)
	if s.sock >= 0 {
		_ = unix.Close(s.sock)
	}
}

// start starts a supervisor and greets it.
func (k *keeper) start() {
	k.gen++
	s, err := k.spawn()
	if err != nil {
		k.log.Error("start supervisor", "exe", k.exe, "err", err)
		k.another(false)
		return
	}
	k.sup = s
	files := make([]int, len(k.cfg.Files))
	for i := range files {
		files[i] = 4 + i
	}
	m := message{Kind: kindHello, Generation: k.gen, KeeperPID: os.Getpid(), Files: files}
	m.Version, m.Oldest = protocols()
	if k.cfg.Heir != nil {
		m.Estate = estateFormat
	}
	k.send(m, nil)
}

func (k *keeper) spawn() (*supervisor, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	files := []uintptr{0, 1, 2, uintptr(pair[1])}
	for _, fd := range k.files {
		files = append(files, uintptr(fd))
	}
	s := &supervisor{gen: k.gen, pidfd: -1, sock: pair[0], exe: k.exe, since: time.Now()}
	err = s.exec(k.cfg.Supervisor, files)
	if err != nil && k.told && s.exe == k.goodExe && s.exe != ownImage { // it was good: somebody removed it
		k.log.Error("start supervisor, trying the keeper's own image instead", "exe", s.exe, "err", err)
		s.exe = ownImage
		err = s.exec(k.cfg.Supervisor, files)
	}
	_ = unix.Close(pair[1])
	if err != nil {
		_ = unix.Close(pair[0])
		return nil, &os.PathError{Op: "exec", Path: k.exe, Err: err}
	}
	if s.pidfd < 0 {
		if s.pidfd, err = platform.OpenPidfd(s.pid); err != nil {
			_ = syscall.Kill(s.pid, syscall.SIGKILL) // a child that is not reaped: the number is its own
			_, _, _ = platform.Reap(s.pid)
			_ = unix.Close(pair[0])
			return nil, err
		}
	}
	_ = k.poll.add(s.pidfd, unix.EPOLLIN, tag{aboutSupervisor, int32(s.gen)})
	_ = k.poll.add(s.sock, unix.EPOLLIN, tag{aboutSocket, int32(s.gen)})
	return s, nil
}

// ownImage is the program that the keeper itself executes, also after its file
// was deleted or replaced.
const ownImage = "/proc/self/exe"

func (s *supervisor) exec(argv []string, files []uintptr) (err error) {
	s.pid, err = syscall.ForkExec(s.exe, argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: files,
		Sys: &syscall.SysProcAttr{Setpgid: true, PidFD: &s.pidfd}, // ^C in the terminal is for the keeper
	})
	return err
}

// died is called when the supervisor is a zombie: the kernel has given us its
// children by then, and all it said is in the socket's buffer.
func (k *keeper) died() {
	s := k.sup
	k.receive()
	exit, _, err := platform.Reap(s.pid)
	if err != nil {
		k.log.Error("reap supervisor", "pid", s.pid, "err", err)
	}
	k.sup = nil
	k.poll.remove(s.pidfd)
	k.adopt(s)
	_ = unix.Close(s.pidfd)
	k.orphans()

	switch {
	case s.done && exit.Code == DoneCode:
		k.finish(0)
		return
	case k.late:
		k.abandon()
		return
	case s.refused != nil && !k.told && len(k.runs) == 0: // nothing is held that somebody must go on for
		if k.cfg.Refused != nil {
			k.cfg.Refused(s.refused.why)
		}
		k.finish(max(1, s.refused.code))
		return
	}
	if s.demands && k.cfg.Heir != nil && k.upgraded != s.exe {
		k.log.Info("the supervisor demands a newer keeper, executing its program", "exe", s.exe)
		k.upgraded, k.exe, k.heirBy = s.exe, s.exe, time.Now().Add(heirWait)
		return
	}
	why := []any{"pid", s.pid, "generation", s.gen, "lived", time.Since(s.since).String(), "ready", s.ready}
	if exit.Signal != 0 {
		why = append(why, "signal", platform.SignalName(exit.Signal))
	} else {
		why = append(why, "code", exit.Code)
	}
	if s.replacing {
		k.log.Info("supervisor replaced", why...)
	} else {
		k.log.Warn("supervisor died", why...)
		k.stage(Recovering)
	}
	k.another(s.ready || s.replacing)
}

// another decides when the next supervisor starts: at once, unless five in a
// row did not get ready.
func (k *keeper) another(wasReady bool) {
	now := time.Now()
	k.startAt = now
	if wasReady {
		k.deaths = 0
		return
	}
	k.deaths++
	switch {
	case k.deaths < maxDeaths:
	case k.exe != k.goodExe && k.exe != ownImage:
		k.log.Error("the new supervisor does not get ready, going back to the one before", "exe", k.exe, "before", k.goodExe)
		k.exe, k.deaths = k.goodExe, 0
	case k.told && k.exe == k.goodExe && k.exe != ownImage: // its file may have been replaced
		k.log.Error("the supervisor does not get ready any more, trying the keeper's own image", "exe", k.exe)
		k.exe, k.deaths = ownImage, maxDeaths-1
	case !k.stopBy.IsZero():
		k.log.Error("no supervisor gets ready, shutting down without", "deaths", k.deaths)
		k.abandon()
	default:
		k.startAt = now.Add(k.cfg.Retry)
		k.exe = k.goodExe // which somebody may have mended by then
		k.log.Error("supervisors die before they are ready: commands, their output and the lock are kept; procsup daemon tries again at once",
			"deaths", k.deaths, "exe", k.exe, "retry_in", k.cfg.Retry.String(), "handles", len(k.runs))
		k.stage(Waiting)
	}
}

// shutdown asks the supervisor to end everything. Without one, the next is
// asked, which is started now.
func (k *keeper) shutdown() {
	if !k.stopBy.IsZero() {
		return
	}
	k.stopBy = time.Now().Add(k.cfg.Grace)
	k.stage(Stopping)
	if k.sup != nil {
		k.ask(k.stopRequest())
		return
	}
	k.deaths = min(k.deaths, maxDeaths-1)
	k.startAt = time.Now()
}

// stopRequest leaves the keeper a moment to see the supervisor end.
func (k *keeper) stopRequest() message {
	left := time.Until(k.stopBy) - min(k.cfg.Grace/10, time.Second)
	return message{Kind: kindShutdown, DeadlineMS: max(left.Milliseconds(), 0)}
}

// overdue is called when a shutdown took too long: first for the supervisor,
// then for the wait until that is dead.
func (k *keeper) overdue() {
	if k.sup == nil || k.late {
		k.log.Error("shutdown took too long", "grace", k.cfg.Grace.String())
		k.abandon()
		return
	}
	k.log.Error("supervisor overran the shutdown, killing it", "pid", k.sup.pid, "grace", k.cfg.Grace.String())
	k.sup.kill()
	k.late = true
	k.stopBy = time.Now().Add(time.Second)
}

// abandon ends the keeper without a supervisor that could end the commands in
// order: they are killed, by group, and named.
func (k *keeper) abandon() {
	for _, r := range k.inOrder() {
		if r.pidfd < 0 || r.exit != nil {
			continue
		}
		err := platform.SignalPidfdGroup(r.pidfd, unix.SIGKILL)
		if err != nil { // before Linux 6.9
			err = platform.SignalPidfd(r.pidfd, unix.SIGKILL)
		}
		k.log.Warn("killed at the end of the shutdown", "handle", r.id, "pid", r.pid, "err", err)
	}
	k.finish(1)
}

func (k *keeper) finish(code int) {
	k.finished, k.code = true, code
	k.startAt = time.Time{}
	k.log.Info("keeper ends", "code", strconv.Itoa(code), "handles", len(k.runs))
}
