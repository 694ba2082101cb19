package main

import "github.com/urfave/cli/v2"

const awaitHelp = `Waits until every CONDITION holds, without starting a server, and then becomes CMD
if one is given. Conditions: tcp:HOST:PORT, unix:PATH, http:URL[=STATUS], file:PATH
and exec:CMD; procsup await --help says what each means. A file is waited for by
the system's word, the others are tried, from 1 ms on, at most every 100 ms.

--any: one is enough · --gone: until they do not hold · --timeout D: at most so long.

Exit codes: 0, or those of CMD · 75 not within the timeout · 64 usage · 126, 127
CMD cannot be executed, was not found · 69 no procsupd.

Examples:
   procsup await tcp:localhost:5432 --timeout 30s -- ./migrate
   procsup await http://localhost:8080/health=204 unix:/run/app.sock
   procsup await --gone file:/run/app.pid --timeout 10s`

func awaitCommand() *cli.Command {
	return &cli.Command{
		Name: "await", Usage: "wait for ports, sockets, URLs, files or commands", ArgsUsage: "CONDITION… [--any] [--gone] [--timeout D] [-- CMD [ARG…]]",
		Flags: []cli.Flag{ // for completion: procsupd reads them
			&cli.BoolFlag{Name: "any", Usage: "wait for one of the conditions only"},
			&cli.BoolFlag{Name: "gone", Usage: "wait until they do not hold"},
			&cli.StringFlag{Name: "timeout", Usage: "at most `D`, then exit 75"},
			&cli.BoolFlag{Name: "quiet", Usage: "do not say what did not hold"},
		},
		Description: awaitHelp, SkipFlagParsing: true, HideHelp: true, HideHelpCommand: true,
		Action: func(c *cli.Context) error { // trying sockets needs package net, which procsup does not link
			return execDaemon("await", append([]string{"await"}, c.Args().Slice()...)...)
		},
	}
}
