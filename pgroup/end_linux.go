package pgroup

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// watch waits for the leader's end without reaping it.
func (g *Group) watch() {
	g.await()
	g.end = time.Now()
	close(g.done)
	g.mu.Lock()
	after := g.after
	g.after = nil
	g.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// AfterEnd has f called when the leader has ended, by the goroutine that saw it,
// or by one of its own if that was before: to wait for Done takes one for each
// command that runs.
func (g *Group) AfterEnd(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ended(g.done) {
		go f() // ends with f
		return
	}
	g.after = append(g.after, f)
}

// await returns once the leader has ended, and notes how.
func (g *Group) await() {
	var peek error
	rc, err := g.pidfd.SyscallConn()
	if err == nil {
		err = rc.Read(func(fd uintptr) bool {
			var ended bool
			g.exit, ended, peek = platform.PeekExit(int(fd))
			g.exitKnown = ended
			if errors.Is(peek, unix.ECHILD) {
				g.taken = errReapedElsewhere
				g.exit, g.exitKnown = platform.ReapedExit(int(fd))
			}
			return ended || peek != nil
		})
	}
	if err != nil || peek != nil && g.taken == nil {
		g.blockingPeek()
	}
}

// errReapedElsewhere is for a host program that waits for every child there is:
// it has reaped the leader, so its number is free and only the pidfd knows it.
var errReapedElsewhere = fmt.Errorf("command was reaped by another part of this program: %w", unix.ECHILD)

// blockingPeek is for a kernel whose pidfds cannot be polled or waited for; it
// holds a thread.
func (g *Group) blockingPeek() {
	exit, err := platform.AwaitExit(g.pid)
	if err != nil {
		exit, g.taken = platform.Exit{Code: -1}, err
	}
	g.exit, g.exitKnown = exit, err == nil
}
