package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sdnotify "github.com/coreos/go-systemd/v22/daemon"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/client"
	"procsup/supervisor/journal"
	"procsup/supervisor/keeper"
)

// shutdownGrace bounds the end of everything when the daemon is told to stop.
const shutdownGrace = 15 * time.Second

// daemonMain is the keeper process.
func daemonMain(o *options) error {
	platform.DropMark() // a daemon that was started inside a run does not belong to it
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
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("state directory %s: %w", state, err)
	}
	lock, err := journal.Lock(state)
	if errors.Is(err, handles.ErrLocked) {
		return joinOther(o, err)
	}
	if err != nil {
		return err
	}
	return keep(o, lock)
}

// keep runs the keeper until the daemon ends.
func keep(o *options, lock *os.File) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if home, err := platform.FindCgroup(); err == nil {
		_, _ = home.Sweep() // empty ones of runs that were killed with all that watched them
	}
	cfg := keeper.Config{
		Supervisor: []string{exe, supervisorVerb, "--socket", o.socket, "--state", o.state, "--session-limit", strconv.Itoa(o.sessionLimit)},
		Exe:        exe,
		Lock:       lock,
		Files:      activation.Files(true),
		Log:        slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Ready: func() {
			o.tell("ready")
			_, _ = sdnotify.SdNotify(false, sdnotify.SdNotifyReady)
		},
	}
	if code := keeper.Keep(context.Background(), cfg); code != 0 {
		os.Exit(code)
	}
	return nil
}

// joinOther is for the loser of a race, and for someone who starts a daemon
// where one runs: whoever only needs one is told when it answers.
func joinOther(o *options, locked error) error {
	_ = keeper.Poke(filepath.Join(o.state, "lock")) // in a race its number may not be written yet
	if o.ready == nil {
		return locked
	}
	c := client.New(client.Config{Socket: o.socket, State: o.state})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := c.Hello(ctx); err != nil {
		return fmt.Errorf("%w; it does not answer: %v", locked, err)
	}
	o.tell("ready")
	return nil
}

// ask tells the running daemon to end or to replace its supervisor.
func ask(o *options) error {
	c := client.New(client.Config{Socket: o.socket, State: o.state, Token: os.Getenv("PROCSUP_TOKEN")})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace+5*time.Second)
	defer cancel()
	hello, err := c.Hello(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "procsupd: no daemon answers at %s: %v\n", o.socket, err)
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
