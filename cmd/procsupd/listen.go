package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/fsnotify/fsnotify"

	"procsup/platform"
	"procsup/supervisor/client"
)

// passedSockets takes the sockets that a service manager listens on for us, see
// sd_listen_fds(3). There may be one, a stream socket of the unix domain.
func passedSockets() ([]*os.File, error) {
	files := activation.Files(true)
	if len(files) > 1 {
		return nil, fmt.Errorf("socket activation: %d sockets were passed, procsupd serves one", len(files))
	}
	for _, f := range files {
		l, err := unixListener(f)
		if err != nil {
			return nil, err
		}
		l.Close() // ours stays
	}
	return files, nil
}

func unixListener(f *os.File) (*net.UnixListener, error) {
	l, err := net.FileListener(f) // by a second descriptor
	if err != nil {
		return nil, fmt.Errorf("socket activation: descriptor %s is no socket that listens: %w", f.Name(), err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("socket activation: %s is a %s socket; procsupd serves only on sockets of the unix domain", l.Addr(), l.Addr().Network())
	}
	u.SetUnlinkOnClose(false) // it is not ours
	return u, nil
}

// listen takes the socket that was passed to us, as it is, or binds our own. It
// says where that can be reached.
func listen(path string, passed []*os.File, ours bool) (l net.Listener, at string, err error) {
	if len(passed) == 0 {
		l, err = bind(path, ours)
		return l, path, err
	}
	u, err := unixListener(passed[0])
	for _, f := range passed {
		f.Close()
	}
	if err != nil {
		return nil, "", err
	}
	return u, u.Addr().String(), nil
}

// bind makes our socket. A path on which somebody answers is not touched, unless
// it is ours: after a supervisor was killed a child that it was about to start
// may hold its socket for a moment.
func bind(path string, ours bool) (net.Listener, error) {
	if err := platform.MakeSocketDir(path); err != nil {
		return nil, err
	}
	if !ours && stays(path) {
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

// stays reports whether somebody answers on a socket and goes on to. The last
// threads of a daemon that was killed hold it for a moment.
func stays(path string) bool {
	const moment, pause = 500 * time.Millisecond, 5 * time.Millisecond
	for end := time.Now().Add(moment); client.Answers(path); time.Sleep(pause) {
		if time.Now().After(end) {
			return true
		}
	}
	return false
}

// watchSocket is closed when the path vanishes, for the daemon to bind anew.
func watchSocket(path string) <-chan struct{} {
	gone := make(chan struct{})
	w, err := fsnotify.NewWatcher()
	if err != nil || w.Add(filepath.Dir(path)) != nil {
		return gone
	}
	missing := func() bool { _, err := os.Lstat(path); return errors.Is(err, os.ErrNotExist) }
	go func() { // ends when the path vanished, or with the process
		defer w.Close()
		for ok := true; ok && !missing(); { // at once, too: it may be gone by now
			var e fsnotify.Event
			for e, ok = <-w.Events; ok && !e.Has(fsnotify.Remove|fsnotify.Rename); e, ok = <-w.Events {
				continue // of a neighbour that is written to, in a directory that is not ours alone
			}
		}
		close(gone)
	}()
	return gone
}
