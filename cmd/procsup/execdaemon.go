package main

import (
	"os"
	"syscall"
)

// execDaemon becomes procsupd, found beside procsup or on PATH, for a verb that
// needs what procsup does not link. It returns only when it cannot.
func execDaemon(verb string, args ...string) error {
	exe, err := findDaemon()
	if err != nil {
		return &exitError{code: exitNoDaemon, msg: verb + ": " + err.Error()}
	}
	return unusable("%s: %s: %v", verb, exe, syscall.Exec(exe, append([]string{exe}, args...), os.Environ()))
}
