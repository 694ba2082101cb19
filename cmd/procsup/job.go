package main

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/outcome"
	"procsup/supervisor/wire"
)

const (
	guardVerb = "guard"
	// linger is how long what a shell leaves to finish (a process
	// substitution) may take before it counts as a leftover.
	linger = 50 * time.Millisecond
	// maxGuards bounds how often a guard that was killed is replaced.
	maxGuards = 5
	// spareFDs is what a run opens besides what it was given, and Go's runtime
	// for its poller, which ends the program when it gets none.
	spareFDs = 24
	// catchLater is when the signals other than stops are caught: catching
	// them all costs as much as a short command takes. One that comes earlier
	// has its default effect.
	catchLater = 2 * time.Millisecond
)

// A decision is the stop of a run: made once, by whoever comes first.
type decision struct {
	cause  handles.Cause
	by     string // user, host
	reason string
	signal syscall.Signal
	at     time.Time
}

// A job is one run of `procsup run`, from spawn to report. It belongs to the
// main goroutine; stops run beside it and answer through settled.
type job struct {
	opt     *options
	id      handles.ID
	token   string // outer/inner, see pgroup.Config.Token
	parent  string
	streams *streams
	result  *resultFile

	sub     *pgroup.Subreaper
	fg      *pgroup.Foreground
	group   *pgroup.Group
	guard   *pgroup.Guard
	guards  int
	signals chan os.Signal

	stop      *decision     // nil: not stopped by us
	ended     bool          // the leader ended
	ending    bool          // Stop or Finish runs
	next      chan struct{} // one value: go to the next step
	settled   chan pgroup.Report
	report    pgroup.Report
	hasResult bool // the ladder is done
}

// runForeground runs one command. Its error is how procsup has to end.
func runForeground(o *options, signals *caught) error {
	if err := platform.NeedFDs(spareFDs); err != nil {
		return unusable("run: %v", err)
	}
	j := &job{opt: o, id: handles.NewID(), next: make(chan struct{}, 1), settled: make(chan pgroup.Report, 1), signals: signals.c}
	j.parent = os.Getenv(pgroup.TokenVar)
	j.token = childToken(j.parent, j.id)
	var err error
	if j.result, err = openResult(o, signals); err != nil {
		return err
	}
	if j.streams, err = openStreams(o, signals); err != nil {
		return err
	}
	defer j.streams.close()
	if f := j.start(signals); f != nil {
		return j.notStarted(f)
	}
	j.streams.started()
	j.streams.events.started()
	j.letGo()
	j.supervise()
	return j.finish()
}

// childToken appends to the token we were started with; a token that grew
// beyond reason, or that we did not make, is replaced.
func childToken(parent string, id handles.ID) string {
	if parent == "" || len(parent) > 1000 {
		return string(id)
	}
	return parent + "/" + string(id)
}

func (j *job) start(signals *caught) *outcome.Failure {
	o := j.opt
	path, f := outcome.Lookup(o.argv[0], o.env, o.dir)
	if f != nil {
		return f
	}
	if o.containment != pgroup.Grp || os.Getpid() == 1 { // PID 1 gets orphans anyway, and has to reap them
		j.sub, _ = pgroup.BecomeSubreaper(true) // where it fails the level says so
	}
	if !o.pty {
		j.fg = pgroup.OpenForeground(platform.IsTerminal(1))
	}
	cmd := pgroup.Command{Path: path, Args: o.argv, Env: o.env, Dir: o.dir}
	if err := j.streams.fill(&cmd); err != nil {
		return outcome.Fail(exitProcsup, "pipe", err, o.argv[0], "run %s: %v", o.argv[0], err)
	}
	var err error
	signals.wait().WithMask(func() {
		j.group, err = pgroup.Start(cmd, pgroup.Config{Containment: o.containment, Token: j.token, Subreaper: j.sub, Mark: true})
	})
	if err != nil {
		return outcome.Explain(err, o.argv, o.env, o.dir)
	}
	j.fg.Begin(j.group)
	j.startGuard()
	return nil
}

// startGuard is not for PID 1: when that dies the kernel ends everything.
func (j *job) startGuard() {
	if os.Getpid() == 1 || j.guards >= maxGuards {
		return
	}
	j.guards++
	var deadline time.Time
	if j.opt.deadline > 0 {
		deadline = j.group.Started().Add(j.opt.deadline)
	}
	guard, err := pgroup.StartGuard(j.group, selfExe(), []string{"procsup", guardVerb}, j.opt.ladder, deadline)
	if err != nil {
		if j.guards == 1 && !errorsIsUnsupported(err) {
			j.say("no guard, so a SIGKILL of procsup would leave the command behind: %v", err)
		}
		return
	}
	j.guard = guard
}

// letGo drops our own copies of what the command was given, so that whoever
// is at the other end sees end-of-file, or a broken pipe, when the command is
// done with it and not when we are. Standard error stays: we speak there.
func (j *job) letGo() {
	platform.CloseFDs(platform.InheritedFDs())
	if j.opt.captures() || j.opt.pty {
		return
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	platform.LetGo(0, int(null.Fd()))
	if !j.result.usesStdout() {
		platform.LetGo(1, int(null.Fd()))
	}
}

// supervise waits for the leader and for whatever may stop it, and returns
// when the tree has been dealt with.
func (j *job) supervise() {
	rest := time.AfterFunc(catchLater, func() {
		platform.CatchRest(j.signals)
		j.signals <- platform.ChildSignal // look once for what came before
	})
	defer rest.Stop()
	deadline := newAlarm(j.opt.deadline)
	quiet := newAlarm(j.opt.noOutput)
	done := j.group.Done()
	for !j.hasResult {
		select { // an end that was seen comes before any stop
		case <-done:
			done = nil
			j.leaderEnded()
			continue
		default:
		}
		select {
		case <-done:
			done = nil
			j.leaderEnded()
		case s := <-j.signals:
			j.onSignal(s.(syscall.Signal))
		case <-deadline.C:
			j.decide(handles.CauseDeadline, "host", "deadline of "+j.opt.deadline.String(), 0)
		case <-quiet.C:
			if left := j.opt.noOutput - time.Since(j.streams.lastActivity(j.group.Started())); left > 0 {
				quiet.Reset(left)
				continue
			}
			j.decide(handles.CauseNoOutput, "host", "no output for "+j.opt.noOutput.String(), 0)
		case why := <-j.opt.outside:
			j.decide(handles.CauseScope, "host", why, 0)
		case rep := <-j.settled:
			j.report, j.hasResult = rep, true
		}
	}
}

// newAlarm is a timer that never fires for 0.
func newAlarm(d time.Duration) *time.Timer {
	t := time.NewTimer(max(d, time.Hour))
	if d > 0 {
		t.Reset(d)
	} else {
		t.Stop()
	}
	return t
}

// leaderEnded starts the treatment of leftovers, unless a stop is under way,
// which sees to them itself.
func (j *job) leaderEnded() {
	j.ended = true
	if j.guard.KeptDeadline() && j.stop == nil {
		j.stop = &decision{cause: handles.CauseDeadline, by: "host", reason: "deadline of " + j.opt.deadline.String(), signal: j.opt.ladder.Signal, at: time.Now()}
	}
	if j.ending {
		return
	}
	j.ending = true
	if j.group.Containment() != pgroup.Grp && j.group.Gone() {
		j.guard.Release()
		j.hasResult = true
		return
	}
	go func() { // bounded by the ladder or ended by next; supervise waits for it
		j.settled <- j.group.Finish(j.opt.leftover, linger, j.opt.ladder, j.next)
	}()
}

// decide stops the run. Once a ladder runs, or only leftovers are left, it
// goes to the next step instead.
func (j *job) decide(cause handles.Cause, by, reason string, sig syscall.Signal) {
	if j.ending {
		if j.ended && j.stop == nil || by == "user" {
			select {
			case j.next <- struct{}{}:
			default: // one is pending
			}
		}
		return
	}
	ladder := j.opt.ladder
	if sig != 0 {
		ladder.Signal = sig
	}
	j.stop = &decision{cause: cause, by: by, reason: reason, signal: ladder.Signal, at: time.Now()}
	j.ending = true
	j.streams.events.put(wire.Event{Kind: wire.EventStopping, Status: handles.Stopping})
	go func() { // bounded by the ladder; supervise waits for it
		j.settled <- j.group.Stop(ladder, j.next)
	}()
}

func (j *job) onSignal(sig syscall.Signal) {
	switch platform.ClassOf(sig) {
	case platform.AsksStop:
		if j.opt.forward {
			_ = j.group.Signal(sig)
			return
		}
		j.decide(handles.CauseCancelled, "user", "SIG"+platform.SignalName(sig), sig)
	case platform.OfChild:
		j.onChild()
	case platform.Continues:
		if j.fg != nil {
			j.fg.Continued()
		} else {
			_ = j.group.Signal(sig)
		}
	case platform.OfJob:
		if !j.streams.resized() {
			_ = j.group.Signal(sig)
		}
	default:
		if !j.streams.own(sig) {
			_ = j.group.SignalLeader(sig)
		}
	}
}

func (j *job) onChild() {
	if !j.ended {
		if sig := platform.PeekStopped(j.group.PID()); sig != 0 {
			j.fg.Stopped(sig)
		}
	}
	if j.guard.Died() {
		j.guard = nil
		if !j.ended {
			j.startGuard()
		}
	}
	j.sub.Reap()
}

// say tells the user what procsup did, on one line.
func (j *job) say(format string, args ...any) {
	if !j.opt.quiet {
		fmt.Fprintf(os.Stderr, "procsup: "+format+"\n", args...)
	}
}
