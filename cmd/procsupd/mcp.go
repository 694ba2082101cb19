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

// mcpMain is `procsup mcp`, whose help is there.
func mcpMain(args []string) int {
	fs := flag.NewFlagSet("procsup mcp", flag.ContinueOnError)
	socket := fs.String("socket", "", "`path` of the daemon's socket")
	state := fs.String("state", "", "state `directory` of the daemon")
	http := fs.String("http", "", "`address` of the loopback to serve over HTTP, for the conformance suite")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || fs.NArg() > 0:
		return exitUsage
	}
	if err := serveMCP(*socket, *state, *http); err != nil {
		fmt.Fprintln(os.Stderr, "procsup: mcp: "+err.Error())
		return exitProcsup
	}
	return 0
}

func serveMCP(socket, state, http string) (err error) {
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
	// A client that is gone is an error of a write, not our death: the session is
	// ended first. Caught, not ignored: what we start would inherit that.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	o := mcp.Options{Socket: socket, State: state, Env: os.Environ(), Dir: dir, In: os.Stdin, Out: os.Stdout, Log: os.Stderr}
	if http != "" {
		return mcp.ServeHTTP(ctx, o, http, func(url string) { fmt.Fprintln(os.Stderr, url) })
	}
	return mcp.Serve(ctx, o)
}
