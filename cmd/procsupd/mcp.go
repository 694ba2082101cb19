package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"procsup/cmd/procsupd/internal/mcp"
	"procsup/platform"
)

// mcpMain is `procsup mcp`.
func mcpMain(args []string) int {
	fs := flag.NewFlagSet("procsup mcp", flag.ContinueOnError)
	socket := fs.String("socket", "", "`path` of the daemon's socket")
	state := fs.String("state", "", "state `directory` of the daemon")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || fs.NArg() > 0:
		return exitUsage
	}
	if err := serveMCP(*socket, *state); err != nil {
		fmt.Fprintln(os.Stderr, "procsup: mcp: "+err.Error())
		return exitProcsup
	}
	return 0
}

func serveMCP(socket, state string) (err error) {
	if socket, err = platform.SocketPath(socket); err != nil {
		return err
	}
	if state, err = platform.StateDir(state); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return mcp.Serve(ctx, mcp.Options{Socket: socket, State: state, Env: os.Environ(), Dir: dir, In: os.Stdin, Out: os.Stdout})
}
