package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"procsup/supervisor"
	"procsup/supervisor/api"
	"procsup/supervisor/journal"
	"procsup/supervisor/keeper"
)

// rebindPause is how long after a failure the socket is bound again.
const rebindPause = time.Second

// keeperSocket is the descriptor on which the keeper talks to its supervisor.
const keeperSocket = 3

// A server is the supervisor process: it recovers, serves, and goes away when
// it is told to, leaving the commands to its successor.
type server struct {
	*supervisor.Supervisor
	o    *options
	log  *slog.Logger
	link *keeper.Link
	door *api.Door
	srv  *http.Server

	passed bool // a service manager made the socket
	over   bool // all is ended: nothing is left to keep
	crowd  *crowd
}

func supervisorMain(o *options) error {
	if err := api.CheckUser(); err != nil {
		return err
	}
	link, handover, err := keeper.Connect(keeperSocket)
	if err != nil {
		return err
	}
	v := &server{o: o, link: link, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), door: api.NewDoor()}
	err = v.run(handover)
	select {
	case <-link.Gone():
		if !v.over {
			return errors.Join(err, v.succeed(handover.Carry))
		}
	default:
	}
	return err
}

// run serves until this process is to go away.
func (v *server) run(handover *keeper.Handover) error {
	failed, err := v.open(handover)
	if err != nil {
		_ = v.link.Refuse(exitOf(err), err.Error())
		return err
	}
	return v.serve(failed)
}

// open binds the socket, recovers and is ready. The channel tells when serving
// has failed.
func (v *server) open(handover *keeper.Handover) (<-chan error, error) {
	v.crowd = newCrowd(silentLimit())
	v.srv = &http.Server{
		Handler: v.door, ConnContext: api.ConnContext, ConnState: v.crowd.state, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		DisableGeneralOptionsHandler: true, // the door answers for all that does not exist
	}
	l, at, err := listen(v.o.socket, handover.Files, handover.Generation > 1)
	if err != nil {
		return nil, err
	}
	v.passed = len(handover.Files) > 0
	failed := make(chan error, 1)
	go func() { failed <- v.srv.Serve(api.Listener(v.crowd.listener(l))) }() // ends with the listener; answers "starting" at first
	v.Supervisor, err = supervisor.Open(context.Background(), supervisor.Config{
		Dir: v.o.state, Keeper: v.link, Handover: handover, Log: v.log, Exclusive: true, SessionLive: v.o.sessionLimit,
		Retention: v.o.keepRecords,
	})
	if err != nil {
		if !v.passed {
			_ = os.Remove(v.o.socket) // nobody should wait for whoever answered there
		}
		return nil, err
	}
	v.door.Open(v.Supervisor)
	if err := os.WriteFile(filepath.Join(v.o.state, "socket"), []byte(at+"\n"), 0o600); err != nil {
		v.log.Warn("record the socket's path", "err", err)
	}
	return failed, v.link.Ready()
}

// serve waits for whatever ends this process.
func (v *server) serve(failed <-chan error) error {
	var gone <-chan struct{} // never, if the path is not ours to see to
	if !v.passed {
		gone = watchSocket(v.o.socket)
	}
	var rebind <-chan time.Time // when binding again has failed
	for {
		select {
		case err := <-failed:
			return fmt.Errorf("serve %s: %w", v.o.socket, err)
		case <-gone:
			gone, rebind = v.bindAgain()
		case <-rebind:
			gone, rebind = v.bindAgain()
		case <-v.link.Gone():
			return errors.New("the keeper is gone")
		case f := <-v.link.Found():
			v.Found(f.ID, f.PID, f.StartTicks)
		case req := <-v.link.Requests():
			if !req.Replace {
				return v.end(req.Deadline)
			}
			if v.replace(req.Exe) {
				return v.Close()
			}
		case req := <-v.door.Requests():
			if !req.Replace {
				_ = v.link.Stopping()
				return v.end(time.Now().Add(shutdownGrace))
			}
			if v.replace(req.Exe) {
				return v.Close()
			}
		}
	}
}

// bindAgain serves new clients after the socket's path vanished, beside those
// of the old listener.
func (v *server) bindAgain() (gone <-chan struct{}, again <-chan time.Time) {
	l, err := bind(v.o.socket, true)
	if err != nil { // no room, no descriptor, no right: any of these may pass
		v.log.Error("bind the socket again", "err", err, "again_in", rebindPause.String())
		return nil, time.After(rebindPause)
	}
	go func() { _ = v.srv.Serve(api.Listener(v.crowd.listener(l))) }() // ends with the process
	return watchSocket(v.o.socket), nil
}

// replace asks the keeper for a successor.
func (v *server) replace(exe string) bool {
	if err := v.link.Replace(exe); err != nil {
		v.log.Error("replace", "err", err)
		return false
	}
	return true
}

// succeed makes this process the keeper, after the death of the one there was:
// all that is to be kept hangs on us alone. It returns only when it fails.
func (v *server) succeed(carry map[string]string) error {
	v.log.Warn("the keeper was killed, going on in its place")
	notifierOf(carry).mainPID()
	if err := journal.NameHolder(v.o.state); err != nil { // before we stop serving
		v.log.Warn("name the holder of the lock", "err", err)
	}
	return v.link.Succeed("/proc/self/exe", append([]string{os.Args[0], keeperVerb}, v.o.paths()...))
}

// end is the end of the daemon: everything is ended within the deadline.
func (v *server) end(deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	v.Shutdown(ctx)
	v.door.Leave()
	_ = v.srv.Shutdown(ctx)
	err := v.Close()
	_ = os.Remove(filepath.Join(v.Dir(), "socket"))
	if !v.passed { // who comes next has to wait for the lock, which the keeper holds
		_ = os.Remove(v.o.socket)
	}
	v.over = true
	return errors.Join(err, v.link.ShutdownDone())
}
