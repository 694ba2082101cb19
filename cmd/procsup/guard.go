package main

import (
	"errors"
	"os"

	"procsup/pgroup"
)

// guardMain is `procsup guard`, the process that `procsup run` starts beside
// its command. It takes no flags and is not for people.
func guardMain(args []string) int { return pgroup.GuardMain(args) }

// selfExe is this very program, also when its file was replaced or removed.
func selfExe() string {
	if _, err := os.Lstat("/proc/self/exe"); err == nil {
		return "/proc/self/exe"
	}
	exe, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return exe
}

func errorsIsUnsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
