// Package mcp is procsup for coding agents: the Model Context Protocol over
// stdio, one attached session of the daemon per connection. Everything a client
// starts through it ends with the connection.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// closeTime bounds the end of the session's work when the connection ends.
const closeTime = 15 * time.Second

// Options say where the daemon is and what a command inherits.
type Options struct {
	Socket, State string
	Env           []string // for commands, K=V; a call may set more
	Dir           string   // for commands that name none
	In            io.ReadCloser
	Out           io.Writer // an *os.File is watched for the end of who reads it
	Log           io.Writer // for people: what is left out
}

// A server is one connection.
type server struct {
	o       Options
	c       *client.Client // takes the ends that its calls wait for
	inbox   *client.Client // takes the rest: a reader of its own
	now     *client.Client // does not wait for a daemon that was there
	session string
	mcp     *sdk.Server
	link    link

	life  context.Context // ends with the connection
	end   context.CancelFunc
	tasks sync.WaitGroup // what goes on beside the calls, until life ends

	owed atomic.Int64 // a hint: finished commands whose results nobody took

	mu       sync.Mutex
	watching map[string]context.CancelFunc // outputs that are subscribed to
	waiting  map[handles.ID]int            // calls that take the end of these
	handed   map[string]bool               // batches that were given and not acknowledged
}

func newServer(ctx context.Context, o Options) *server {
	s := &server{
		o: o, session: handles.NewSessionName(), link: link{turn: make(chan struct{}, 1)},
		watching: map[string]context.CancelFunc{}, waiting: map[handles.ID]int{}, handed: map[string]bool{},
	}
	s.o.Env = usable(o.Env, o.Log)
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	cfg := client.Config{Socket: o.Socket, State: o.State, Session: s.session}
	s.c, s.inbox = client.New(cfg), client.New(cfg)
	cfg.Patience = -1
	s.now = client.New(cfg)
	s.mcp = s.build()
	return s
}

// Serve speaks MCP until the input ends and every request is answered, nobody
// reads the answers any more, or ctx ends; then the commands of the connection
// are ended.
func Serve(ctx context.Context, o Options) error {
	s := newServer(ctx, o)
	c := newConn(o.In, o.Out)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if f, ok := o.Out.(*os.File); ok {
		if w, err := platform.WatchHangup(f); err == nil { // else a write tells
			defer w.Close()
			go func() { // ends with the reader, or with the connection
				select {
				case <-w.Done():
					c.Close()
				case <-c.over:
				}
			}()
		}
	}
	err := s.mcp.Run(context.WithoutCancel(ctx), c)
	c.Close()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, s.finish())
}

// finish ends the session, and waits for what goes on beside the calls.
func (s *server) finish() error {
	var err error
	if s.link.held() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if _, err = s.c.CloseSession(ctx, s.session, wire.EndSession{Reason: "the MCP connection ended", By: "host"}); err != nil {
			err = fmt.Errorf("end the commands of session %s: %w", s.session, err)
		}
	}
	s.end()
	s.tasks.Wait()
	return errors.Join(err, s.c.Close(), s.inbox.Close(), s.now.Close())
}

const instructions = `Runs shell commands so that slow ones do not block you and nothing is lost or left behind.

run_command answers when the command has ended, or after background_after_s with a handle while it goes on.
Never sleep or poll: wait_for_output is woken by the line it waits for, wait by the end of the command.
A server: run_command with background_after_s 0, wait_for_output for its ready line, use it, cancel it.
Commands that finish in the background are told of at the end of the next answer; take_finished gives their results, once each: acknowledge them when you have used them.
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
