package main

import (
	"os"
	"syscall"

	"procsup/supervisor/client"
)

// execDaemon becomes procsupd for a verb that needs what procsup must not link.
// It returns only if it cannot.
func execDaemon(verb string, args []string) error {
	exe, err := client.FindDaemon()
	if err != nil {
		return &exitError{code: exitNoDaemon, msg: verb + ": " + err.Error()}
	}
	argv := append([]string{exe, verb}, args...)
	return unusable("%s: %s: %v", verb, exe, syscall.Exec(exe, argv, os.Environ()))
}
