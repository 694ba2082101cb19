package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/urfave/cli/v2"
)

// forwarded makes a verb one that procsupd does: what it needs would cost
// start-up time in every procsup. Its help is told here, from its flags and
// description; procsupd reads the flags.
func forwarded(cmd *cli.Command) *cli.Command {
	cmd.SkipFlagParsing, cmd.HideHelp, cmd.HideHelpCommand = true, true, true
	cmd.Action = func(c *cli.Context) error {
		args := c.Args().Slice()
		for _, a := range args {
			if a == "--" {
				break
			}
			if a == "--help" || a == "-h" {
				return cli.ShowCommandHelp(c, cmd.Name)
			}
		}
		return becomeProcsupd(cmd.Name, args)
	}
	return cmd
}

// becomeProcsupd lets procsupd do a verb in this process's place. It returns
// only if that cannot be.
func becomeProcsupd(verb string, args []string) error {
	exe, err := findDaemon()
	if err != nil {
		return unusable("%s: %v", verb, err)
	}
	argv := append([]string{exe, verb}, args...)
	err = syscall.Exec(exe, argv, os.Environ())
	if !errors.Is(err, errors.ErrUnsupported) { // Windows has no exec
		return unusable("%s: %s: %v", verb, exe, err)
	}
	cmd := exec.Command(exe, argv[1:]...)
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
