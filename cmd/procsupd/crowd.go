package main

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"procsup/platform"
)

// silence is how long a client may be connected without asking anything before
// it counts as silent.
const silence = 250 * time.Millisecond

// silentLimit is how many silent clients are kept: a small share of the
// descriptors, most of which are for commands.
func silentLimit() int {
	soft, _ := platform.FDLimit()
	return int(min(max(soft/16, 4), 256))
}

// A crowd keeps clients that are connected and ask nothing from taking all
// descriptors: of too many the one that has been silent longest is let go. One
// whose request is being answered is never touched.
type crowd struct {
	limit int

	mu     sync.Mutex
	silent map[net.Conn]time.Time // since when
}

func newCrowd(limit int) *crowd { return &crowd{limit: limit, silent: map[net.Conn]time.Time{}} }

// state is for http.Server.ConnState.
func (c *crowd) state(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s {
	case http.StateNew, http.StateIdle:
		c.silent[conn] = time.Now()
	default:
		delete(c.silent, conn)
	}
}

// thin closes silent ones while there are more than n, the longest silent
// first. It reports whether it closed any.
func (c *crowd) thin(n int) (any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.silent) > n {
		var oldest net.Conn
		since := time.Now().Add(-silence)
		for conn, t := range c.silent {
			if t.Before(since) {
				oldest, since = conn, t
			}
		}
		if oldest == nil {
			return any
		}
		delete(c.silent, oldest)
		oldest.Close()
		any = true
	}
	return any
}

func (c *crowd) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.silent)
}

// listener makes room for those who come.
func (c *crowd) listener(l net.Listener) net.Listener { return &crowded{Listener: l, c: c} }

type crowded struct {
	net.Listener
	c *crowd
}

func (l *crowded) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		switch {
		case err == nil:
			for l.c.thin(l.c.limit); l.c.size() >= 2*l.c.limit; l.c.thin(l.c.limit) {
				time.Sleep(silence / 10) // all have just come: the next wait in the backlog
			}
			return conn, nil
		case (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && l.c.thin(0):
		default:
			return nil, err
		}
	}
}
