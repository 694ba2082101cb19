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
		Flags: []cli.Flag{ // for completion: procsupd reads them
			&cli.BoolFlag{Name: "status", Usage: "say whether one runs"},
			&cli.BoolFlag{Name: "stop", Usage: "end the daemon of this state directory"},
			&cli.BoolFlag{Name: "replace", Usage: "restart its supervisor with the installed binary; commands live on"},
			&cli.StringFlag{Name: "socket", Usage: "`path` of the socket"},
			&cli.StringFlag{Name: "state", Usage: "state `directory`"},
			&cli.StringFlag{Name: "session-limit", Usage: "at most `N` live handles per session"},
			&cli.StringFlag{Name: "keep-records", Usage: "keep what has ended for `D`"},
			&cli.StringFlag{Name: "ready-fd", Usage: "write a line to descriptor `N` once it answers"},
		},
		Description: daemonHelp, SkipFlagParsing: true, HideHelp: true, HideHelpCommand: true,
		Action: func(c *cli.Context) error {
			return execDaemon("daemon", c.Args().Slice()...)
		},
	}
}
