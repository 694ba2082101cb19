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

// supervisorMain is the supervisor process: it recovers, serves, and goes away
// when it is told to, leaving the commands to its successor.
func supervisorMain(o *options) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	link, handover, err := keeper.Connect(keeperSocket)
	if err != nil {
		return err
	}
	door := api.NewDoor()
	srv := &http.Server{Handler: door, ConnContext: api.ConnContext, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	l, err := listen(o.socket, handover.Files, handover.Generation > 1)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }() // ends with the listener; answers "starting" at first
	s, err := supervisor.Open(context.Background(), supervisor.Config{
		Dir: o.state, Keeper: link, Handover: handover, Log: log, Exclusive: true, SessionLive: o.sessionLimit,
	})
	if err != nil {
		return err
	}
	door.Open(s)
	if err := os.WriteFile(filepath.Join(o.state, "socket"), []byte(o.socket+"\n"), 0o600); err != nil {
		log.Warn("record the socket's path", "err", err)
	}
	if err := link.Ready(); err != nil {
		return err
	}
	gone := watchSocket(o.socket)
	for {
		select {
		case err := <-failed:
			return fmt.Errorf("serve %s: %w", o.socket, err)
		case <-gone:
			if l, err = listen(o.socket, nil, true); err != nil {
				log.Error("bind the socket again", "err", err)
				continue
			}
			go func() { _ = srv.Serve(l) }() // beside the old listener, for new clients
			gone = watchSocket(o.socket)
		case <-link.Gone():
			return errors.New("the keeper is gone")
		case req := <-link.Requests():
			if !req.Replace {
				return end(s, srv, link, req.Deadline)
			}
			if err := link.Replace(req.Exe); err != nil {
				log.Error("replace", "err", err)
				continue
			}
			return s.Close()
		case f := <-link.Found():
			s.Found(f.ID, f.PID, f.StartTicks)
		case req := <-door.Requests():
			if !req.Replace {
				return end(s, srv, link, time.Now().Add(shutdownGrace))
			}
			if err := link.Replace(req.Exe); err != nil {
				log.Error("replace", "err", err)
				continue
			}
			return s.Close()
		}
	}
}

// end is the end of the daemon: everything is ended within the deadline.
func end(s *supervisor.Supervisor, srv *http.Server, link *keeper.Link, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	s.Shutdown(ctx)
	_ = srv.Shutdown(ctx)
	err := s.Close()
	_ = os.Remove(filepath.Join(s.Dir(), "socket"))
	return errors.Join(err, link.ShutdownDone())
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
