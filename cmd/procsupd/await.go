package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/ready"
)

// awaitVerb waits for conditions of the world outside; procsup await execs it.
const awaitVerb = "await"

// Exit codes of await, design.md §8.
const (
	exitTimedOut = 75
	exitCannot   = 126
	exitNotFound = 127
)

const awaitUsage = `Usage: procsup await CONDITION… [--any] [--gone] [--timeout D] [-- CMD [ARG…]]

Waits until every CONDITION holds, and then becomes CMD if one is given.

  tcp:HOST:PORT      a connection is accepted by any address of HOST; [::1]:PORT for IPv6
  unix:PATH          a connection to a socket of any type is accepted; unix:@NAME is abstract
  http://…, https://…, http:URL
                     GET answers with 2xx, or with STATUS where =STATUS stands behind the URL.
                     No redirect is followed and no proxy used; a certificate has to be valid
                     for the system's roots (else exec:curl -k). http://unix:SOCKET:/PATH asks
                     over a unix socket. In a query that ends in NAME=200 that is a value:
                     write NAME=200=200 to want status 200.
  file:PATH          PATH exists, whatever it is; told by the system (inotify), not polled
  exec:CMD           sh -c CMD exits 0; it and all of its group are ended after 10 s

Sockets, URLs and commands are tried from 1 ms on; the pause between two tries
grows with the time waited up to 100 ms. A URL has 5 s to answer.

Flags:
  --any          wait for one of the conditions only
  --gone         wait until they do not hold: a port closed, a file removed, a command failing
  --timeout D    at most so long (such as 500ms, 30s, 2m; a number is seconds; 0 = only
                 look), then exit 75
  --quiet        do not say what did not hold
  --help

Exit codes: 0 · 75 not within the timeout · 64 usage · with CMD, those of CMD;
126 it cannot be executed, 127 it was not found.

Examples:
  procsup await tcp:localhost:5432 --timeout 30s -- ./migrate
  procsup await --any http://localhost:8080/ http://localhost:8081/
  procsup await http://unix:/run/app.sock:/health=204
  procsup await 'exec:pg_isready -q' --timeout 1m
  procsup await --gone file:/run/app.pid
`

// An awaiting is what the command line of await asks for.
type awaiting struct {
	conds            []ready.Cond
	any, gone, quiet bool
	timeout          time.Duration // 0 = none, < 0: one try
	argv             []string
}

// parseAwait checks everything before anything happens.
func parseAwait(args []string, out io.Writer) (*awaiting, error) {
	a := &awaiting{}
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	for i := 0; i < len(args); i++ {
		name, value, has := strings.Cut(args[i], "=")
		switch {
		case args[i] == "--":
			if a.argv = args[i+1:]; len(a.argv) == 0 {
				return nil, awaitError("no command behind --")
			}
			i = len(args)
		case args[i] == "--help" || args[i] == "-h":
			fmt.Fprint(out, awaitUsage)
			return nil, flag.ErrHelp
		case args[i] == "--any":
			a.any = true
		case args[i] == "--gone":
			a.gone = true
		case args[i] == "--quiet" || args[i] == "-q":
			a.quiet = true
		case name == "--timeout" || args[i] == "-t":
			if !has {
				if i++; i == len(args) {
					return nil, awaitError("%s needs a duration", args[i-1])
				}
				value = args[i]
			}
			if a.timeout, err = awaitTime(value); err != nil {
				return nil, awaitError("%s: %v", name, err)
			}
		case strings.HasPrefix(args[i], "-"):
			return nil, awaitError("unknown flag %s; see procsup await --help", args[i])
		default:
			c, err := ready.Parse(args[i], dir)
			if err == nil && c.OfRun() {
				err = fmt.Errorf("condition %q is one of a run; use procsup start --ready", args[i])
			}
			if err != nil {
				return nil, awaitError("%v", err)
			}
			a.conds = append(a.conds, c)
		}
	}
	if len(a.conds) == 0 {
		return nil, awaitError("no condition given; try: procsup await tcp:localhost:8080")
	}
	return a, nil
}

func awaitError(format string, args ...any) error {
	return &usageError{fmt.Errorf("await: "+format, args...)}
}

// awaitTime reads a duration or a number of seconds; 0 is one look.
func awaitTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		n, nerr := strconv.ParseFloat(s, 64)
		if nerr != nil || math.IsNaN(n) || math.Abs(n) > math.MaxInt64/1e9 {
			return 0, fmt.Errorf("%q is not a duration (such as 500ms, 90s, 10m, or a number of seconds)", s)
		}
		d = time.Duration(n * float64(time.Second))
	}
	switch {
	case d < 0:
		return 0, fmt.Errorf("%q is negative", s)
	case d == 0:
		return -1, nil
	}
	return d, nil
}

var errAwaitTime = errors.New("the time is over")

// A signalled is the cause of a wait that a signal ended.
type signalled struct{ syscall.Signal }

func (s signalled) Error() string { return s.String() }

// awaitMain runs the verb and returns its exit code.
func awaitMain(args []string) int {
	a, err := parseAwait(args, os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "procsup: "+err.Error())
		return exitUsage
	}
	began := time.Now()
	unmet, err := a.wait()
	var sig signalled
	switch {
	case errors.As(err, &sig): // what exec: ran is ended by now
		return 128 + int(sig.Signal)
	case err != nil:
		a.say(unmet, time.Since(began))
		return exitTimedOut
	case len(a.argv) > 0:
		return become(a.argv)
	}
	return 0
}

// wait waits until the time is over or a signal comes that asks us to end.
func (a *awaiting) wait() ([]ready.Unmet, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if a.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, a.timeout, errAwaitTime)
		defer stop()
	}
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	defer signal.Stop(signals) // the command gets what we were given
	go func() {                // ends with the wait
		select {
		case s := <-signals:
			cancel(signalled{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	dir, err := os.Getwd()
	if err != nil {
		dir = ""
	}
	place := &ready.Place{Dir: dir, Env: os.Environ(), Once: a.timeout < 0}
	if a.executes() { // so that nothing of a check gets away
		if place.Subreaper, err = pgroup.BecomeSubreaper(true); err == nil {
			defer func() { _ = platform.UnsetSubreaper() }() // the command gets what we were given
		}
	}
	return place.AwaitAll(ctx, a.conds, a.any, a.gone)
}

// executes reports whether one of the conditions is a command.
func (a *awaiting) executes() bool {
	return slices.ContainsFunc(a.conds, func(c ready.Cond) bool { return c.Kind == ready.Exec })
}

// say names what did not hold, a line each.
func (a *awaiting) say(unmet []ready.Unmet, d time.Duration) {
	if a.quiet {
		return
	}
	for _, u := range unmet {
		why := "no answer yet"
		if u.Why != nil {
			why = u.Why.Error()
		}
		when := ""
		if a.timeout > 0 {
			when = "after " + d.Round(time.Millisecond).String() + ": "
		}
		fmt.Fprintf(os.Stderr, "procsup: await: %s%s: %s\n", when, u.Cond, why)
	}
}

// become executes the command in our place. It returns only when it cannot.
func become(argv []string) int {
	path, err := exec.LookPath(argv[0])
	if err == nil {
		err = syscall.Exec(path, argv, os.Environ())
	}
	fmt.Fprintf(os.Stderr, "procsup: await: %s: %v\n", argv[0], bareError(err))
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return exitNotFound
	}
	return exitCannot
}

func bareError(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
