package main

import (
	"github.com/urfave/cli/v2"
)

const mcpHelp = `Speaks the Model Context Protocol on stdin and stdout, for coding agents: run
commands, wait for them or for their output, read it, write to them, cancel
them, take what finished in the background. It starts a daemon if there is none.
Every command ends with the connection.

Examples:
   claude mcp add procsup -- procsup mcp        Claude Code
   {"mcpServers": {"procsup": {"command": "procsup", "args": ["mcp"]}}}
                                                Cursor and others
   procsup mcp <requests.jsonl                  every request is answered`

func mcpCommand() *cli.Command {
	return &cli.Command{
		Name: "mcp", Usage: "serve coding agents over stdio (Model Context Protocol)",
		Description: mcpHelp, OnUsageError: onUsageError, HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "socket", Usage: "`PATH` of the daemon's socket (default: PROCSUP_SOCKET, else $XDG_RUNTIME_DIR/procsup/sock)"},
			&cli.StringFlag{Name: "state", Usage: "state `DIR` of the daemon (default: PROCSUP_STATE, else ~/.local/state/procsup)"},
			&cli.StringFlag{Name: "http", Hidden: true, Usage: "`ADDRESS` of the loopback to serve over HTTP, for the conformance suite"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return usagef("mcp: unexpected argument %q; see procsup mcp --help", c.Args().First())
			}
			args := []string{"mcp"}
			for _, name := range []string{"socket", "state", "http"} {
				if c.IsSet(name) {
					args = append(args, "--"+name+"="+c.String(name))
				}
			}
			return execDaemon("mcp", args...)
		},
	}
}
