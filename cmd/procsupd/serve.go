package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"procsup/platform"
	"procsup/supervisor"
	"procsup/supervisor/api"
	"procsup/supervisor/client"
	"procsup/supervisor/keeper"
)

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
	v.srv = &http.Server{Handler: v.door, ConnContext: api.ConnContext, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	l, err := listen(o.socket, handover.Files, handover.Generation > 1)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- v.srv.Serve(l) }() // ends with the listener; answers "starting" at first
	v.Supervisor, err = supervisor.Open(context.Background(), supervisor.Config{
		Dir: o.state, Keeper: link, Handover: handover, Log: v.log, Exclusive: true, SessionLive: o.sessionLimit,
	})
	if err != nil {
		return err
	}
	v.door.Open(v.Supervisor)
	if err := os.WriteFile(filepath.Join(o.state, "socket"), []byte(o.socket+"\n"), 0o600); err != nil {
		v.log.Warn("record the socket's path", "err", err)
	}
	if err := link.Ready(); err != nil {
		return err
	}
	return v.serve(failed)
}

// serve waits for whatever ends this process.
func (v *server) serve(failed <-chan error) error {
	gone := watchSocket(v.o.socket)
	for {
		select {
		case err := <-failed:
			return fmt.Errorf("serve %s: %w", v.o.socket, err)
		case <-gone:
			gone = v.bindAgain()
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
func (v *server) bindAgain() <-chan struct{} {
	l, err := listen(v.o.socket, nil, true)
	if err != nil {
		v.log.Error("bind the socket again", "err", err)
		return nil
	}
	go func() { _ = v.srv.Serve(l) }() // ends with the process
	return watchSocket(v.o.socket)
}

// replace asks the keeper for a successor.
func (v *server) replace(exe string) bool {
	if err := v.link.Replace(exe); err != nil {
		v.log.Error("replace", "err", err)
		return false
	}
	return true
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
	return errors.Join(err, v.link.ShutdownDone())
}

// listen binds the socket, or takes the one that a service manager passed. A
// path on which somebody answers is not touched, unless it is ours: after a
// supervisor was killed a child that it was about to start may hold its socket
// for a moment.
func listen(path string, passed []*os.File, ours bool) (net.Listener, error) {
	for _, f := range passed {
		l, err := net.FileListener(f)
		f.Close()
		if err == nil {
			return l, nil
		}
	}
	if err := platform.MakeSocketDir(path); err != nil {
		return nil, err
	}
	if !ours && client.Answers(path) {
		return nil, fmt.Errorf("socket %s: another daemon answers there; use another --socket", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	return l, os.Chmod(path, 0o600)
}

// watchSocket is closed when the path vanishes, for the daemon to bind anew.
func watchSocket(path string) <-chan struct{} {
	gone := make(chan struct{})
	w, err := fsnotify.NewWatcher()
	if err != nil || w.Add(filepath.Dir(path)) != nil {
		return gone
	}
	go func() { // ends when the path vanished, or with the process
		defer w.Close()
		for range w.Events {
			if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
				close(gone)
				return
			}
		}
	}()
	return gone
}
