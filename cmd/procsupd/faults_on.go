//go:build procsup_faults && unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"procsup/handles"
	"procsup/supervisor"
)

// faults makes the supervisor die of SIGKILL at a point between two steps, once
// for each file of that name that a test puts into $PROCSUP_FAULTS. Text "both"
// in it stops the keeper first, for the test to kill: one that is killed here
// might be succeeded before we are dead.
func faults() *supervisor.Hooks {
	dir := os.Getenv("PROCSUP_FAULTS")
	if dir == "" {
		return nil
	}
	return &supervisor.Hooks{At: func(point string, _ handles.ID) {
		path := filepath.Join(dir, point)
		what, err := os.ReadFile(path)
		if err != nil || os.Remove(path) != nil { // another goroutine was first
			return
		}
		if strings.Contains(string(what), "both") {
			_ = syscall.Kill(os.Getppid(), syscall.SIGSTOP)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal comes at once
	}}
}
