package client

import (
	"context"
	"fmt"
	"time"

	"procsup/platform"
	"procsup/supervisor/wire"
)

// Shutdown ends the daemon and every command of it, and returns when it is
// gone.
func (c *Client) Shutdown(ctx context.Context) error {
	_, err := c.ShutdownReport(ctx, wire.Shutdown{})
	return err
}

// ShutdownReport is Shutdown that says, if req asks for it, what became of the
// commands.
func (c *Client) ShutdownReport(ctx context.Context, req wire.Shutdown) (*wire.DaemonReport, error) {
	hello, err := c.Hello(ctx)
	if err != nil {
		return nil, err
	}
	a, err := call[wire.Accepted](ctx, c, never, c.signed(request{method: "POST", target: wire.PathShutdown, kind: jsonKind, body: marshal(req)}))
	if err != nil {
		return nil, err
	}
	pid := hello.KeeperPID
	if pid == 0 {
		pid = hello.PID
	}
	for !platform.AwaitGone(pid, 50*time.Millisecond) { // a look at the context now and then
		if ctx.Err() != nil {
			return a.Report, fmt.Errorf("wait for the end of process %d: %w", pid, context.Cause(ctx))
		}
	}
	return a.Report, nil
}

// Replace makes the daemon start exe, "" = the same binary, as its supervisor
// and returns when that answers. Commands live on.
func (c *Client) Replace(ctx context.Context, exe string) error {
	a, err := call[wire.Accepted](ctx, c, never, c.signed(request{method: "POST", target: wire.PathShutdown, kind: jsonKind, body: marshal(wire.Shutdown{Replace: true, Exe: exe})}))
	if err != nil {
		return err
	}
	t := tries{c: c}
	for {
		hello, err := c.Hello(ctx)
		if err != nil {
			return fmt.Errorf("the daemon does not come back: %w", err)
		}
		if hello.Generation > a.Generation {
			return nil
		}
		if err := t.pause(ctx); err != nil {
			return fmt.Errorf("wait for the new supervisor: %w", err)
		}
	}
}
