package supervisor

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/ready"
	"procsup/supervisor/wire"
)

// A readying is what a run that was started with conditions has for them. The
// goroutine watchReady owns it from the spawn on.
type readying struct {
	conds  []ready.Cond
	name   string     // NOTIFY_SOCKET; "" = none
	notify *os.File   // nil: none
	fds    []*os.File // read ends, in the order of the conditions fd:
	stop   context.CancelFunc
	done   chan struct{} // closed when watchReady has ended; nil: it was not begun
	doomed *time.Timer   // it can never be ready; the command may be about to end

	mu  sync.Mutex
	why []error // of each condition, why it did not hold when last looked at

	level bool // it is ready, and that is durable; guarded by Supervisor.mu
}

// newReadying is nil for a run without conditions.
func newReadying(spec wire.Start) *readying {
	if len(spec.Ready) == 0 {
		return nil
	}
	conds, err := ready.ParseAll(spec.Ready, spec.Dir)
	if err != nil {
		return nil // checked at admission
	}
	return &readying{conds: conds, why: make([]error, len(conds))}
}

// checkReady refuses conditions that can never work.
func checkReady(req wire.Start) error {
	conds, err := ready.ParseAll(req.Ready, req.Dir)
	if err != nil {
		return invalid("ready", "%v", err)
	}
	if req.ReadyMS != nil && *req.ReadyMS < 0 {
		return invalid("ready_timeout_ms", "%d is negative", *req.ReadyMS)
	}
	_, notify := ready.Descriptors(conds)
	switch {
	case req.ReadyMS != nil && len(conds) == 0:
		return invalid("ready_timeout_ms", "there is no condition (ready) that could take so long")
	case req.WatchdogMS < 0:
		return invalid("watchdog_ms", "%d is negative", req.WatchdogMS)
	case req.WatchdogMS > 0 && !notify:
		return invalid("watchdog_ms", "needs the condition notify: it is told over that socket")
	}
	return nil
}

// begin is the readiness of a run that has just been admitted; nil without
// conditions.
func (q *readying) begin(spec wire.Start) *handles.Readiness {
	if q == nil {
		return nil
	}
	v := &handles.Readiness{State: handles.ReadyWaiting, WatchdogMS: spec.WatchdogMS}
	for _, c := range q.conds {
		v.Conditions = append(v.Conditions, handles.Condition{Condition: c.Text})
	}
	return v
}

// extra is how many descriptors it takes.
func (q *readying) extra() int {
	if q == nil {
		return 0
	}
	fds, notify := ready.Descriptors(q.conds)
	n := len(fds)
	if notify {
		n++
	}
	return n
}

// open makes the socket and the pipes. Ours are registered with the keeper, so
// that nothing that comes while no supervisor lives is lost.
func (q *readying) open(p *plumbing) (err error) {
	if q == nil {
		return nil
	}
	fds, notify := ready.Descriptors(q.conds)
	if notify {
		q.name = platform.NewNotifyName()
		if q.notify, err = platform.ListenNotify(q.name); err != nil {
			return err
		}
		if err := p.keep(q.notify); err != nil {
			return err
		}
	}
	for _, n := range fds {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		p.more = append(p.more, numbered{n, w})
		q.fds = append(q.fds, r)
		if err := p.keep(r); err != nil {
			return err
		}
	}
	return nil
}

// takeUp takes what the keeper held of it, in the order of open, and gives back
// the rest.
func (q *readying) takeUp(files []*os.File) []*os.File {
	if q == nil {
		return files
	}
	fds, notify := ready.Descriptors(q.conds)
	if notify && len(files) > 0 {
		q.notify, files = files[0], files[1:]
	}
	n := min(len(fds), len(files))
	q.fds = files[:n:n]
	return files[n:]
}

// closeFiles lets go of them. They may be gone already.
func (q *readying) closeFiles() {
	if q == nil {
		return
	}
	if q.notify != nil {
		q.notify.Close()
	}
	closeAll(q.fds)
}

// environ is the command's environment: where to notify, and how often.
func (q *readying) environ(spec wire.Start) []string {
	if q == nil || q.name == "" {
		return spec.Env
	}
	env := slices.DeleteFunc(slices.Clone(spec.Env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == "NOTIFY_SOCKET" || name == "WATCHDOG_USEC" || name == "WATCHDOG_PID"
	})
	env = append(env, "NOTIFY_SOCKET="+q.name)
	if spec.WatchdogMS > 0 { // without WATCHDOG_PID it is for any process, sd_watchdog_enabled(3)
		env = append(env, "WATCHDOG_USEC="+strconv.FormatInt(spec.WatchdogMS*1000, 10))
	}
	return env
}

func (q *readying) tried(i int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.why[i] = err
}

func (q *readying) reason(i int) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.why[i] == nil {
		switch q.conds[i].Kind {
		case ready.Output:
			return "it was not written"
		case ready.Notify:
			return "READY=1 did not come"
		case ready.FD:
			return "no line came"
		}
		return "the first try had no answer yet"
	}
	return q.why[i].Error()
}

// setReadyLimit notes by when the run has to be ready. s.mu is held.
func (r *run) setReadyLimit() {
	if d := readyTimeout(r.spec); r.ready != nil && d > 0 {
		v := r.rec.Readiness.Clone()
		v.Until = r.rec.StartedAt.Add(d)
		r.rec.Readiness = v
	}
}

// takeUpReady takes over the level of the last supervisor. s.mu is held.
func (r *run) takeUpReady() {
	if r.ready != nil {
		r.ready.level = !r.rec.ReadyAt.IsZero()
	}
}
