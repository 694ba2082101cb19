package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// A front is a command that runs as the parent run of a session. The daemon
// runs it; it ends with us.
type front struct {
	r      *remote
	c      *cli.Context
	req    *wire.Start
	input  io.Reader // what its stdin gets; nil: nothing is passed on
	out    *os.File  // what it writes goes here; nil: nowhere
	errOut *os.File
	quiet  bool
	codes  bool // exit 128+n instead of dying of a signal

	id      handles.ID
	env     *wire.Started // the answer to its start
	copies  *copies
	asks    chan func() error // for ask, one after the other
	asked   int               // signals that asked for a stop
	waiting []func() error    // what was to be asked before the start was answered
}

// A frontEnd is how the daemon answered in the end.
type frontEnd struct {
	rec *handles.Record
	err error
}

// run runs the command and returns its record: it has ended, or it was released
// and goes on.
func (f *front) run(signals *caught) (*handles.Record, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	feed, err := f.openFeed()
	if err != nil {
		return nil, err
	}
	defer feed.close()
	f.req.Idempotency = client.NewKey() // also for a second call: it never runs twice
	f.req.Inline = f.c.Bool("json")
	f.copies, f.asks = newCopies(f), make(chan func() error, 16)
	defer f.copies.cancel()
	defer close(f.asks)
	signals.wait()
	platform.CatchRest(signals.c) // PIPE too: writes to a closed stdout or stderr fail then, and do not end us
	started, ended := make(chan *wire.Started, 1), make(chan frontEnd, 1)
	go func() { // ends with the run, or with ctx
		var e frontEnd
		e.err = f.r.do(func() (err error) {
			e.rec, err = f.r.Run(ctx, *f.req, func(a *wire.Started) {
				select {
				case started <- a:
				default: // told before
				}
			})
			return err
		})
		ended <- e
	}()
	for {
		select {
		case a := <-started:
			f.begin(a, feed)
		case s := <-signals.c:
			f.onSignal(s.(syscall.Signal), cancel)
		case src := <-f.copies.broken:
			f.stop(wire.Cancel{Signal: "PIPE", Reason: "nobody reads its " + src + " any more"})
		case e := <-ended:
			select {
			case a := <-started:
				f.begin(a, feed)
			default:
			}
			return f.finish(e, signals)
		}
	}
}

// begin passes the streams through once the command runs.
func (f *front) begin(a *wire.Started, feed *stdinFeed) {
	f.id, f.env = a.HandleID, a
	feed.begin()
	if a.PID != 0 {
		f.copies.begin(f.id, f.req.Merge)
	}
	go f.ask() // ends when run does
	for _, what := range f.waiting {
		f.asks <- what
	}
	f.waiting = nil
}

// onSignal does with a signal what procsup run does: the command gets it, ends by
// it, or stops with us.
func (f *front) onSignal(sig syscall.Signal, cancel context.CancelCauseFunc) {
	switch class := platform.ClassOf(sig); {
	case class == platform.AsksStop:
		f.onStop(sig, cancel)
	case class == platform.Continues || class == platform.PassOn && sig != syscall.SIGPIPE: // that is of our own writes
		f.later(func() error { return f.signal(platform.SignalName(sig), class == platform.PassOn) })
	case platform.Suspends(sig):
		f.later(func() error {
			err := f.signal("STOP", false) // TSTP does nothing in a session without a terminal, setpgid(2)
			platform.StopGroup(sig)        // returns once we were continued, or at once where nobody could do that
			return errors.Join(err, f.signal("CONT", false))
		})
	}
}

// onStop ends the command with that signal as its first step; a second one
// goes to the next step. Before the start was answered the second gives up.
func (f *front) onStop(sig syscall.Signal, cancel context.CancelCauseFunc) {
	f.asked++
	if f.id == "" && f.asked > 1 {
		cancel(&exitError{code: 128 + int(sig), signal: sig, msg: "run: given up before the daemon has answered"})
		return
	}
	k := wire.Cancel{Signal: platform.SignalName(sig), Reason: "SIG" + platform.SignalName(sig), NoWait: true}
	if f.asked > 1 {
		k.GraceMS = new(int64)
	}
	f.stop(k)
}

func (f *front) stop(k wire.Cancel) {
	k.NoWait = true
	f.later(func() error { _, err := f.r.Cancel(context.Background(), string(f.id), k); return err })
}

// signal passes a signal on, to the leader alone or to its group.
func (f *front) signal(name string, leader bool) error {
	_, err := f.r.Signal(context.Background(), string(f.id), wire.Signal{Signal: name, Leader: leader})
	return err
}

// later has the daemon asked for something once the command runs.
func (f *front) later(what func() error) {
	if f.id == "" {
		f.waiting = append(f.waiting, what)
		return
	}
	select {
	case f.asks <- what:
	default: // a daemon that does not answer gets enough of them
	}
}

// ask asks the daemon in the order in which it came.
func (f *front) ask() {
	for what := range f.asks {
		err := f.r.do(what)
		if err != nil && !errors.Is(err, handles.ErrNotFound) && !errors.Is(err, handles.ErrEnded) {
			f.say("%v", err)
		}
	}
}

// finish waits for whoever reads the output, and says what became of the
// command.
func (f *front) finish(e frontEnd, signals *caught) (*handles.Record, error) {
	if e.err != nil {
		return nil, e.err
	}
	passedOn := true
	if e.rec.Status.Terminal() {
		passedOn = f.copies.finish(signals.c, e.rec.Stop != nil)
	} else {
		f.copies.cancel() // it goes on without us
	}
	f.tell(e.rec, passedOn)
	return e.rec, nil
}

// mirror ends procsup as the command ended.
func (f *front) mirror(rec *handles.Record) error {
	if !rec.Status.Terminal() {
		return nil
	}
	code, say := handleExit(rec)
	e := &exitError{code: code, msg: say}
	if code == 0 && say == "" {
		return nil
	}
	if sig, err := platform.ParseSignal(rec.Signal); err == nil && code == 128+int(sig) && !f.codes {
		e.signal = sig
	}
	return e
}

func (f *front) say(format string, args ...any) {
	if !f.quiet {
		fmt.Fprintf(os.Stderr, "procsup: "+format+"\n", args...)
	}
}
