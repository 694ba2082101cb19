// Package mcp is procsup for coding agents: the Model Context Protocol over
// stdio, one attached session of the daemon per connection. Everything a client
// starts through it ends with the connection.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// closeTime bounds the end of the session's work when the connection ends.
const closeTime = 15 * time.Second

// maxFrame bounds one message of the client.
const maxFrame = 8 << 20

// Options say where the daemon is and what a command inherits.
type Options struct {
	Socket, State string
	Env           []string // for commands, K=V; a call may set more
	Dir           string   // for commands that name none
	In            io.ReadCloser
	Out           io.WriteCloser
}

// A server is one connection.
type server struct {
	o       Options
	c       *client.Client // takes the ends that its calls wait for
	inbox   *client.Client // takes the rest: a reader of its own
	session string
	mcp     *sdk.Server

	owed atomic.Int64 // a hint: finished commands whose results were not taken

	mu       sync.Mutex
	inFront  map[handles.ID]bool           // a call waits for them
	watching map[string]context.CancelFunc // resources that are subscribed to
}

// Serve speaks MCP until the input ends and every request is answered, or ctx
// ends; then the commands of the connection are ended.
func Serve(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{o: o, session: handles.NewSessionName(), inFront: map[handles.ID]bool{}, watching: map[string]context.CancelFunc{}}
	cfg := client.Config{Socket: o.Socket, State: o.State, Session: s.session}
	s.c, s.inbox = client.New(cfg), client.New(cfg)
	defer s.c.Close()
	defer s.inbox.Close()
	gone, err := s.attach(ctx)
	if err != nil {
		return err
	}
	s.mcp = s.build()
	go s.announce(ctx) // ends with ctx
	l := newLedger()
	t := &sdk.IOTransport{
		Reader:        &input{ctx: ctx, r: o.In, l: l, tap: tap{look: l.read}},
		Writer:        &output{w: o.Out, tap: tap{look: l.sent}},
		MaxLineLength: maxFrame,
	}
	served := make(chan error, 1)
	go func() { served <- s.mcp.Run(ctx, t) }() // ends with the input, or ctx
	select {
	case err = <-served:
	case err = <-gone:
		err = fmt.Errorf("the session with the daemon was lost: %w", err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		err = nil
	}
	end, stop := context.WithTimeout(context.Background(), closeTime)
	defer stop()
	_, cerr := s.c.CloseSession(end, s.session, wire.EndSession{Reason: "the MCP connection ended", By: "host"})
	return errors.Join(err, cerr)
}

// attach opens the session, which ends with this process. The channel gets an
// error when the daemon cannot be reached any more.
func (s *server) attach(ctx context.Context) (<-chan error, error) {
	opened := make(chan struct{}, 1)
	gone := make(chan error, 1)
	hold := func() {
		err := s.c.Attach(ctx, wire.OpenSession{Name: s.session}, func(*handles.Session) error {
			select {
			case opened <- struct{}{}:
			default: // again, after a restart
			}
			return nil
		})
		if ctx.Err() == nil {
			gone <- err
		}
	}
	if _, err := s.c.Hello(ctx); errors.Is(err, client.ErrNoDaemon) {
		if err := client.StartDaemon(s.o.Socket, s.o.State); err != nil {
			return nil, err
		}
	}
	go hold() // ends with ctx, or without a daemon
	select {
	case <-opened:
		return gone, nil
	case err := <-gone:
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

const instructions = `Runs shell commands so that slow ones do not block you and nothing is lost or left behind.

run_command answers when the command has ended, or after background_after_s with a handle while it goes on.
Never sleep or poll: wait_for_output is woken by the line it waits for, wait by the end of the command.
Start a server with run_command (background_after_s 0), wait_for_output for its ready line, then use it, then cancel it.
Results of commands that finished in the background come once each from take_finished; acknowledge them when you have used them.
Every command ends with this connection.`

func (s *server) build() *sdk.Server {
	m := sdk.NewServer(&sdk.Implementation{Name: "procsup", Title: "procsup: dependable commands", Version: wire.Version}, &sdk.ServerOptions{
		Instructions:       instructions,
		Capabilities:       &sdk.ServerCapabilities{},
		SubscribeHandler:   s.subscribe,
		UnsubscribeHandler: s.unsubscribe,
	})
	s.runTools(m)
	s.outputTools(m)
	s.handleTools(m)
	s.inboxTools(m)
	s.resources(m)
	return m
}

// front notes that a call waits for a handle, so that its end is no news.
func (s *server) front(id handles.ID, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.inFront[id] = true
	} else {
		delete(s.inFront, id)
	}
}

// announce follows the notices of the session: a command that finished in the
// background is told through the inbox resource, and with the next answer.
func (s *server) announce(ctx context.Context) {
	_ = s.c.Notices(ctx, 0, func(n wire.Notice) error { // its end is that of the connection
		if n.Kind != wire.NoticeFinished && n.Kind != wire.NoticeReady && n.Kind != wire.NoticeSubscribed {
			return nil
		}
		s.mu.Lock()
		waited := s.inFront[n.HandleID]
		s.mu.Unlock()
		if waited {
			return nil
		}
		p, err := s.c.Pending(ctx, false)
		if err != nil {
			return nil // it is asked for again with the next notice
		}
		s.owed.Store(int64(p.Count))
		if p.Count > 0 {
			_ = s.mcp.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: inboxURI})
		}
		if n.HandleID != "" {
			_ = s.mcp.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: handleURI(n.HandleID)})
		}
		return nil
	})
}

// settle acknowledges an end that an answer carries. It is done before the
// answer is sent: if that is lost, so is the connection, and all with it.
func (s *server) settle(ctx context.Context, batch string) error {
	if batch == "" {
		return nil
	}
	_, err := s.c.Acknowledge(ctx, s.session, wire.Acknowledge{Batch: batch})
	return err
}
