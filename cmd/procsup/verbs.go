package main

import "github.com/urfave/cli/v2"

// daemonVerbs are the verbs that talk to the daemon.
func daemonVerbs(signals *caught) []*cli.Command {
	return []*cli.Command{
		startCommand(), waitCommand(), waitOutputCommand(), waitReadyCommand(), awaitCommand(), withCommand(signals), cancelCommand(), restartCommand(), signalCommand(), sendCommand(),
		showCommand(), listCommand(), logsCommand(), eventsCommand(), journalCommand(), daemonCommand(),
		sessionCommand(), scopeCommand(), pendingCommand(), continueCommand(), deliveriesCommand(), notifyCommand(), idleCommand(), shutdownCommand(),
		mcpCommand(), lintCommand(),
	}
}
