package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// execDaemon becomes procsupd, found beside procsup or on PATH, with these
// arguments, for a verb that needs what procsup does not link. It returns only
// when it cannot.
func execDaemon(verb string, args ...string) error {
	exe, err := findDaemon()
	if err != nil {
		return &exitError{code: exitNoDaemon, msg: verb + ": " + err.Error()}
	}
	err = syscall.Exec(exe, append([]string{exe}, args...), os.Environ())
	if !errors.Is(err, errors.ErrUnsupported) { // Windows has no exec
		return unusable("%s: %s: %v", verb, exe, err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	var ended *exec.ExitError
	switch err := cmd.Run(); {
	case err == nil:
		return nil
	case errors.As(err, &ended):
		return &exitError{code: ended.ExitCode()}
	default:
		return unusable("%s: %s: %v", verb, exe, err)
	}
}
