package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/client"
	"procsup/supervisor/outcome"
	"procsup/supervisor/wire"
)

const withHelp = `Starts SERVER under the daemon, as procsup start does; when it is ready, runs CLIENT
in front, as procsup run does (terminal, signals, status); when that has ended, ends
the server and all its tree, and exits as CLIENT ended. All flags are for SERVER.

However this ends, nothing is left: a server that is not ready in time, or ends
before CLIENT does, ends it all, and that is said; a SIGKILL of procsup too. CLIENT
has the server's handle id in PROCSUP_SERVER.

Exit codes: CLIENT's own · 65 the server was not ready in time, or ended before
CLIENT did · 126, 127 one of them cannot be executed, was not found · 64 usage · 69
no daemon · 73 refused · 125 procsup itself.

Examples:
   procsup with --ready tcp:localhost:8080 -- ./server --then -- npm test
   procsup with --ready notify --ready-timeout 10s -- redis-server --supervised systemd --then -- ./tests.sh
   procsup with --ready fd:3 -- Xvfb -displayfd 3 --then -- sh -c \
       'DISPLAY=:$(procsup show --json $PROCSUP_SERVER | jq -r .readiness.conditions[0].text) ./gui-test'`

func withCommand(signals *caught) *cli.Command {
	c := verb("with", "run a command while a server is up", "[--] SERVER [ARG…] --then [--] CLIENT [ARG…]", withHelp, func(c *cli.Context, r *remote) error {
		return doWith(c, r, signals)
	}, slices.DeleteFunc(startFlags(), func(f cli.Flag) bool {
		return slices.Contains([]string{"background-after", "idempotency-key", "stdin", "lease"}, f.Names()[0])
	})...)
	c.Flags = slices.DeleteFunc(c.Flags, func(f cli.Flag) bool { return f.Names()[0] == "session" || f.Names()[0] == "json" })
	return c
}

// splitThen parts SERVER… --then [--] CLIENT… .
func splitThen(args []string) (server, then []string, err error) {
	i := slices.Index(args, "--then")
	if i < 0 {
		return nil, nil, usagef("with: no --then CLIENT behind the server; try: procsup with --ready tcp:localhost:8080 -- ./server --then -- ./test")
	}
	server, then = args[:i], args[i+1:]
	if len(then) > 0 && then[0] == "--" {
		then = then[1:]
	}
	switch {
	case len(server) == 0:
		return nil, nil, usagef("with: no server given before --then")
	case len(then) == 0 || then[0] == "":
		return nil, nil, usagef("with: no command given behind --then")
	}
	return server, then, nil
}

// A pair is one run of `procsup with`.
type pair struct {
	*remote
	req     *wire.Start
	opt     *options
	signals *caught
	session string
	server  handles.ID
}

func doWith(c *cli.Context, r *remote, signals *caught) error {
	server, then, err := splitThen(c.Args().Slice())
	if err != nil {
		return err
	}
	req, err := parseStartOf(c, "", server)
	if err != nil {
		return err
	}
	if len(req.Ready) == 0 {
		return usagef("with: no --ready CONDITION that says when %s is up", server[0])
	}
	if _, f := outcome.Lookup(then[0], os.Environ(), ""); f != nil {
		return &exitError{code: f.Code, msg: f.Msg}
	}
	req.Lease, req.Stdin = "service", "null"
	if signals == nil {
		signals = catchEarly()
	}
	p := &pair{remote: r, req: req, signals: signals, opt: &options{
		ladder: pgroup.Ladder{Signal: syscall.SIGTERM, Grace: 2 * time.Second}, leftover: pgroup.Kill, stdin: "inherit", argv: then,
	}}
	err = p.up()
	if err == nil {
		err = p.run()
	}
	p.down()
	return err
}

// up starts the server in a session that ends with this process, and returns
// when it is ready. A signal that asks us to stop ends the wait.
func (p *pair) up() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	up := make(chan error, 1)
	go func() { up <- p.start(ctx) }() // ends with the context; waited for below
	for {
		select {
		case err := <-up:
			return err
		case s := <-p.signals.c:
			sig := s.(syscall.Signal)
			if platform.ClassOf(sig) != platform.AsksStop {
				continue
			}
			cancel()
			<-up
			return &exitError{code: 128 + int(sig), signal: sig}
		}
	}
}

func (p *pair) start(ctx context.Context) error {
	name := handles.NewSessionName()
	err := p.do(func() error {
		_, err := p.OpenSession(ctx, wire.OpenSession{Name: name, BindPID: os.Getpid()})
		return err
	})
	if err != nil {
		return err
	}
	p.session, p.req.Session = name, name
	a, err := p.Start(ctx, *p.req)
	if err != nil {
		return p.explain(err)
	}
	if a.SpawnError != nil {
		return ended(&handles.Record{HandleID: a.HandleID, Status: a.Status, SpawnError: a.SpawnError, Error: a.Error, Command: p.req.Command})
	}
	p.server = a.HandleID
	w, err := p.WaitReady(ctx, string(p.server), 0)
	if err != nil {
		return p.explain(err)
	}
	if w.Status != wire.Ready {
		return &exitError{code: exitNoMatch, msg: "with: " + notReady(p.req.Command[0], w.Record)}
	}
	return nil
}

// run runs the client in front while the server is watched.
func (p *pair) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.opt.env = append(os.Environ(), "PROCSUP_SERVER="+string(p.server))
	p.opt.outside = make(chan string, 1)
	go func() { // ends with the server, or with the context
		w, err := p.Wait(ctx, string(p.server), 0)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			p.opt.outside <- fmt.Sprintf("the server %s cannot be watched any more (%v)", p.req.Command[0], err)
		default:
			p.opt.outside <- fmt.Sprintf("the server %s is %s", p.req.Command[0], outcomeText(w.Record))
		}
	}()
	return runForeground(p.opt, p.signals)
}

// down ends the server. Its session ends with this process anyway: a signal that
// asks us to stop ends the wait for that.
func (p *pair) down() {
	if p.session == "" {
		return
	}
	done := make(chan struct{})
	go func() { // ends with the answer, or with this process
		defer close(done)
		rep, err := p.CloseSession(context.Background(), p.session, wire.EndSession{Reason: "procsup with is over", By: "host"})
		p.tell(rep, err)
	}()
	for {
		select {
		case <-done:
			return
		case s := <-p.signals.c:
			if platform.ClassOf(s.(syscall.Signal)) == platform.AsksStop {
				return
			}
		}
	}
}

// tell says what of the server could not be ended.
func (p *pair) tell(rep *wire.SessionReport, err error) {
	switch {
	case errors.Is(err, client.ErrNoDaemon): // which has ended everything, or will when it comes back
	case err != nil:
		fmt.Fprintf(os.Stderr, "procsup: with: end the server: %v\n", err)
	case len(rep.StillRunning) > 0:
		var left []string
		for _, m := range rep.StillRunning {
			left = append(left, fmt.Sprintf("%d (%s)", m.PID, plain(m.Command, 60)))
		}
		fmt.Fprintf(os.Stderr, "procsup: with: of the server there is left: %s\n", strings.Join(left, ", "))
	}
}
