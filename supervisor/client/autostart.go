package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"procsup/platform"
)

// DaemonName is the file name of the daemon's binary.
const DaemonName = "procsupd"

// daemonTime bounds how long a daemon that is being started may take to answer;
// with 100,000 records to read it takes some 0.3 s.
const daemonTime = 30 * time.Second

// FindDaemon is the daemon's binary: beside ours, else on PATH.
func FindDaemon() (string, error) {
	var dirs []string
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(exe))
	}
	dirs = append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
	for _, dir := range dirs {
		path := filepath.Join(dir, DaemonName)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && filepath.IsAbs(path) && platform.CanExecute(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s beside procsup or on PATH; install it there", DaemonName)
}

// StartDaemon starts a daemon that outlives us and returns once it answers.
// When several do so at once one daemon is left, and all are told of it.
func StartDaemon(socket, state string) error {
	if state == "" {
		return platform.ErrNoStateDir
	}
	exe, err := FindDaemon()
	if err != nil {
		return err
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	argv := []string{exe, "--socket", socket, "--state", state, "--ready-fd", "3"}
	p, err := platform.StartDetached(exe, argv, withoutOurs(os.Environ()), theirs)
	theirs.Close()
	if err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	go func() { _, _ = p.Wait() }() // no zombie of one that lost a race; ends with us
	_ = ready.SetReadDeadline(time.Now().Add(daemonTime))
	b, err := io.ReadAll(io.LimitReader(ready, 64<<10))
	said := strings.TrimSpace(string(b))
	switch {
	case said == "ready":
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the daemon did not answer within %v; see procsup daemon --status", daemonTime)
	case said == "":
		return fmt.Errorf("the daemon %s ended without a word; try: procsup daemon", exe)
	}
	return errors.New(strings.TrimPrefix(said, DaemonName+": "))
}

// withoutOurs is an environment without our variables: the daemon gets its
// paths as arguments, and is part of no run, no session and no other service.
func withoutOurs(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "PROCSUP_") && !ofServiceManager(kv) {
			out = append(out, kv)
		}
	}
	return out
}

// ofServiceManager reports whether a variable is what a service manager tells
// one service: the daemon would speak for the one that its starter runs in.
func ofServiceManager(kv string) bool {
	name, _, _ := strings.Cut(kv, "=")
	return name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "LISTEN_") || strings.HasPrefix(name, "WATCHDOG_")
}
