package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/api"
	"procsup/supervisor/client"
	"procsup/supervisor/journal"
	"procsup/supervisor/keeper"
)

// shutdownGrace bounds the end of everything when the daemon is told to stop.
const shutdownGrace = 15 * time.Second

// daemonMain is the keeper process.
func daemonMain(o *options) error {
	runtime.UnlockOSThread() // the keeper has few threads, and starts one process
	platform.DropMark()      // a daemon that was started inside a run does not belong to it
	state, err := platform.StateDir(o.state)
	if err != nil {
		return err
	}
	socket, err := platform.SocketPath(o.socket)
	if err != nil {
		return err
	}
	o.state, o.socket = state, socket
	if o.stop || o.replace || o.status {
		return ask(o)
	}
	if err := api.CheckUser(); err != nil { // a supervisor would say so again and again
		return err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("state directory %s: %w", state, err)
	}
	lock, err := journal.Lock(state)
	if errors.Is(err, handles.ErrLocked) {
		if lock, err = joinOther(o, err); err == nil && lock == nil {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return keep(o, lock)
}

// keep runs the keeper until the daemon ends.
func keep(o *options, lock *os.File) error {
	passed, err := passedSockets()
	if err != nil {
		return err
	}
	n := takeNotifier()
	keepToOurselves()
	if home, err := platform.FindCgroup(); err == nil {
		_, _ = home.Sweep() // empty ones of runs that were killed with all that watched them
	}
	return runKeeper(o, n, keeper.Config{Lock: lock, Files: passed, Carry: n.carry()})
}

// heirMain is a keeper that goes on where another ended, in the same process as
// a program before it: in that of a supervisor whose keeper was killed, or of a
// keeper that was told to become this program.
func heirMain(o *options, estate int) error {
	e, err := keeper.OpenEstate(estate)
	if err != nil {
		return err
	}
	platform.DropMark()
	if e.Lock != nil {
		if err := journal.LockAgain(e.Lock); err != nil {
			fmt.Fprintln(os.Stderr, "procsupd: the lock names another process:", err) // it is information only
		}
	}
	n := notifierOf(e.Carry)
	n.mainPID()
	return runKeeper(o, n, keeper.Config{Lock: e.Lock, Files: e.Files, Carry: e.Carry, Estate: e})
}

func runKeeper(o *options, n notifier, cfg keeper.Config) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	n = n.background()
	cfg.Supervisor = append([]string{exe, supervisorVerb}, o.paths()...)
	cfg.Heir = append([]string{exe, keeperVerb}, o.paths()...)
	cfg.Exe = exe
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg.Ready = func() { o.tell("ready") }
	cfg.Refused = func(why string) { o.tell("procsupd: " + why) } // it has said so on stderr itself
	cfg.Stage = n.stage
	cfg.Beat, cfg.Pulse = n.alive, n.watchdog/3
	cfg.ReplaceOnHUP = n.socket != "" // a service manager means reload by it, a terminal that goes away does not
	code := keeper.Keep(context.Background(), cfg)
	n.flush()
	if code != 0 {
		os.Exit(code)
	}
	return nil
}

// keepToOurselves keeps what whoever started us left open from supervisors and
// commands.
func keepToOurselves() {
	for _, fd := range platform.InheritedFDs() {
		platform.SetCloexec(fd)
	}
}

const (
	// joinWait is how long the loser of a race waits for the other daemon's answer.
	joinWait = 10 * time.Second
	// dyingWait is how long a lock is waited for whose holder is dead: its last
	// descriptors are being closed, or it is being succeeded.
	dyingWait = 2 * time.Second
)

// joinOther is for the loser of a race, and for someone who starts a daemon
// where one runs: whoever only needs one is told when it answers. A lock that
// becomes free meanwhile is taken; without lock and error there is nothing to do.
func joinOther(o *options, locked error) (*os.File, error) {
	holder := journal.LockedBy(o.state)
	_ = keeper.Poke(filepath.Join(o.state, "lock")) // in a race its number may not be written yet
	wait := joinWait
	if o.ready == nil {
		if id, err := platform.Identify(holder); err == nil && id.Liveness() == platform.Live {
			return nil, locked
		}
		wait = dyingWait
	}
	type taken struct {
		lock *os.File
		err  error
	}
	free := make(chan taken, 1)
	go func() { // ends with this process if the other daemon lives on
		lock, err := journal.LockWhenFree(o.state)
		free <- taken{lock, err}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	answers := make(chan error, 1)
	if o.ready != nil {
		go func() { answers <- o.hello(ctx, wait) }() // ends with ctx
	}
	for {
		select {
		case t := <-free:
			return t.lock, t.err
		case err := <-answers:
			if err == nil {
				o.tell("ready")
				return nil, nil
			}
			locked, answers = fmt.Errorf("%w; it does not answer: %v", locked, err), nil
		case <-ctx.Done():
			return nil, locked
		}
	}
}

// hello waits until the daemon answers.
func (o *options) hello(ctx context.Context, patience time.Duration) error {
	c := client.New(client.Config{Socket: o.socket, State: o.state, Patience: patience})
	defer c.Close()
	_, err := c.Hello(ctx)
	return err
}

// ask tells the running daemon to end or to replace its supervisor.
func ask(o *options) error {
	c := client.New(client.Config{Socket: o.socket, State: o.state, Token: os.Getenv("PROCSUP_TOKEN")})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace+5*time.Second)
	defer cancel()
	hello, err := c.Hello(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "procsupd: %v\n", err)
		os.Exit(exitNone)
	}
	switch {
	case o.status:
		fmt.Printf("supervisor %d, keeper %d, generation %d, %d live, state %s\n", hello.PID, hello.KeeperPID, hello.Generation, hello.Live, hello.StateDir)
		return nil
	case o.replace:
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		return c.Replace(ctx, exe)
	}
	return c.Shutdown(ctx)
}
