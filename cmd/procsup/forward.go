package main

import "github.com/urfave/cli/v2"

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
		return execDaemon(cmd.Name, append([]string{cmd.Name}, args...)...)
	}
	return cmd
}
