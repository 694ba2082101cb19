package main

import "github.com/urfave/cli/v2"

const daemonHelp = `Becomes procsupd, the daemon, in front: for service managers and containers.
Verbs that need a daemon start one by themselves. All flags are procsupd's;
procsup daemon --help prints them.

Examples:
   procsup daemon
   procsup daemon --status
   procsup daemon --replace
   procsup daemon --stop`

func daemonCommand() *cli.Command {
	return &cli.Command{
		Name: "daemon", Usage: "run, replace, stop or look for the daemon", ArgsUsage: "[flags of procsupd]",
		Description: daemonHelp, SkipFlagParsing: true, HideHelp: true, HideHelpCommand: true,
		Action: func(c *cli.Context) error {
			return execDaemon("daemon", c.Args().Slice()...)
		},
	}
}
