// Package client talks to the daemon over its unix socket: the methods of a
// Supervisor, with a context. It is linked into every procsup, so it speaks
// HTTP by hand: package net alone costs each `procsup run` 0.8 ms.
package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"procsup/platform"
)

// Config says where the daemon is.
type Config struct {
	Socket string // path of the socket
	// State is the daemon's state directory, which records the socket's path
	// and the keeper's number; "" = neither is looked for.
	State string
	// Session in which names are looked up and commands started; "" = default.
	Session string
	// Token is that of the session that the caller runs in, PROCSUP_TOKEN; "" =
	// of none. Printable ASCII without spaces; any other is left out.
	Token string
	// Patience bounds how long a daemon that was there is waited for when it
	// is being restarted; 0 = 5 s, < 0 = not at all.
	Patience time.Duration
}

// ErrNoDaemon says that nobody answers on the socket, and that nobody seems
// about to.
var ErrNoDaemon = errors.New("no daemon answers")

// A Client is for any number of goroutines. Close it.
type Client struct {
	cfg    Config
	reader string // tells this client from others of the process

	mu     sync.Mutex
	idle   *conn // kept for the next call; nil: none
	met    bool  // a daemon answered before
	closed bool
}

// New makes a client. It connects when it is used.
func New(cfg Config) *Client {
	if cfg.Patience == 0 {
		cfg.Patience = 5 * time.Second
	}
	if strings.ContainsFunc(cfg.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		cfg.Token = ""
	}
	return &Client{cfg: cfg, reader: NewKey()}
}

// Close lets go of the kept connection. Calls under way are not disturbed.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.idle != nil {
		c.idle.f.Close()
		c.idle = nil
	}
	return nil
}

// Answers reports whether somebody listens on a socket.
func Answers(path string) bool {
	f, err := platform.DialUnix(path)
	if err != nil {
		return errors.Is(err, syscall.EAGAIN) // a full backlog is somebody's
	}
	f.Close()
	return true
}

// take gives the kept connection if it is still good, else a new one.
func (c *Client) take() (*conn, error) {
	c.mu.Lock()
	k := c.idle
	c.idle = nil
	c.mu.Unlock()
	if k != nil {
		if platform.StillOpen(k.f) {
			return k, nil
		}
		k.f.Close()
	}
	f, err := platform.DialUnix(c.cfg.Socket)
	if err != nil && absent(err) {
		if other := c.recorded(); other != "" {
			if g, gerr := platform.DialUnix(other); gerr == nil {
				f, err = g, nil
			}
		}
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.met = true
	c.mu.Unlock()
	return newConn(f), nil
}

// keep takes a connection back on which an answer was read to its end.
func (c *Client) keep(k *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.idle != nil {
		k.f.Close()
		return
	}
	k.kept = true
	c.idle = k
}

// absent reports whether nobody listens there.
func absent(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTDIR)
}

// recorded is the path that the daemon of our state directory wrote down, if
// it is another one than ours.
func (c *Client) recorded() string {
	if c.cfg.State == "" {
		return ""
	}
	b, err := os.ReadFile(filepath.Join(c.cfg.State, "socket"))
	path := strings.TrimSuffix(string(b), "\n")
	if err != nil || !filepath.IsAbs(path) || path == c.cfg.Socket {
		return ""
	}
	return path
}

// expected reports whether a daemon that does not answer is likely to do so
// soon: it did before, or its keeper lives.
func (c *Client) expected(err error) bool {
	c.mu.Lock()
	met := c.met
	c.mu.Unlock()
	if met || errors.Is(err, syscall.EAGAIN) {
		return true
	}
	if c.cfg.State == "" {
		return false
	}
	b, err := os.ReadFile(filepath.Join(c.cfg.State, "lock"))
	if err != nil {
		return false
	}
	line, _, _ := strings.Cut(string(b), "\n") // more may follow that was there before
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	return err == nil && pid > 0 && platform.RunsProcsup(pid)
}

// unreachable says that there is no daemon, and what to do.
func (c *Client) unreachable(err error) error {
	switch {
	case absent(err):
		return fmt.Errorf("%w at %s; start one with: procsup daemon", ErrNoDaemon, c.cfg.Socket)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w; the socket belongs to another user: give your own by --socket or PROCSUP_SOCKET", err)
	case errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("%w: %w: its queue of connections stays full", ErrNoDaemon, err)
	}
	return err
}
