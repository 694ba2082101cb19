package mcp

import (
	"context"
	"errors"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// A link holds the session of a connection: attached when it is first needed,
// and anew when the daemon went away with its keeper, or the session was closed
// by somebody else.
type link struct {
	turn chan struct{} // who holds it looks at lost, and attaches
	lost chan struct{} // closed when the session is not held any more; nil: it never was
	drop context.CancelFunc
}

// letGo ends a hold, unless there is another by now.
func (l *link) letGo(of <-chan struct{}) {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if l.lost == of {
		l.drop()
		<-l.lost
	}
}

func (l *link) held() bool {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.isHeld()
}

func (l *link) isHeld() bool {
	if l.lost == nil {
		return false
	}
	select {
	case <-l.lost:
		return false
	default:
		return true
	}
}

// attach makes sure that the session is held; it starts a daemon if there is
// none. While the supervisor is replaced the client holds on by itself; ask is
// the client that asks for the daemon first.
func (s *server) attach(ctx context.Context, ask *client.Client) (held chan struct{}, err error) {
	select {
	case s.link.turn <- struct{}{}:
		defer func() { <-s.link.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s.link.isHeld() {
		return s.link.lost, nil
	}
	if _, err := ask.Hello(ctx); errors.Is(err, client.ErrNoDaemon) {
		if err := client.StartDaemon(s.o.Socket, s.o.State); err != nil {
			return nil, fmt.Errorf("start the daemon: %w", err)
		}
	}
	hold, drop := context.WithCancel(s.life)
	opened, lost := make(chan struct{}, 1), make(chan struct{})
	var why error
	s.tasks.Go(func() { // ends with life, the daemon, or the session
		defer drop()
		defer close(lost)
		why = s.c.Attach(hold, wire.OpenSession{Name: s.session}, func(*handles.Session) error {
			select {
			case opened <- struct{}{}:
			default: // again, after a restart
			}
			return nil
		})
	})
	select {
	case <-opened:
	case <-lost:
		return nil, fmt.Errorf("open a session: %w", why)
	case <-ctx.Done():
		drop()
		return nil, context.Cause(ctx)
	}
	s.link.lost, s.link.drop = lost, drop
	s.tasks.Go(func() { s.announce(hold) }) // ends with hold
	return lost, nil
}

// reach makes a call of the daemon in the session. It is made once more if it
// had no effect because there was no daemon, which is started then, or because
// somebody closed the session, which is opened anew.
func reach[T any](ctx context.Context, s *server, call func() (T, error)) (T, error) {
	var none T
	held, err := s.attach(ctx, s.c)
	if err != nil {
		return none, err
	}
	v, err := call()
	unheard := errors.Is(err, client.ErrNoDaemon) && !errors.Is(err, handles.ErrOutcomeUnknown)
	if !unheard && !errors.Is(err, handles.ErrClosed) {
		return v, err
	}
	s.link.letGo(held)
	if _, aerr := s.attach(ctx, s.now); aerr != nil {
		return none, errors.Join(err, aerr)
	}
	return call()
}

// announce follows the notices of the session: a command that finished in the
// background is told through the inbox resource, and with the next answer.
func (s *server) announce(ctx context.Context) {
	_ = s.c.Notices(ctx, 0, func(n wire.Notice) error { // its end is that of the link
		switch n.Kind {
		case wire.NoticeFinished:
			s.updated(ctx, handleURI(n.HandleID))
		case wire.NoticeReady, wire.NoticeSubscribed:
		default:
			return nil
		}
		if s.recount(ctx) > 0 {
			s.updated(ctx, inboxURI)
		}
		return nil
	})
}

// updated tells the subscribers of a resource. Whether they are still there is
// seen by who reads them.
func (s *server) updated(ctx context.Context, uri string) {
	_ = s.mcp.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: uri})
}

// recount counts what finished and was given to nobody.
func (s *server) recount(ctx context.Context) int64 {
	p, err := s.c.Pending(ctx, true)
	if err != nil {
		return s.owed.Load() // it is asked for again with the next notice
	}
	n := int64(0)
	for _, c := range p.Items {
		if c.Batch == "" {
			n++
		}
	}
	s.owed.Store(n)
	return n
}

// taking notes that a call waits for the end of a handle, and takes it.
func (s *server) taking(id handles.ID) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[id]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting[id]--; s.waiting[id] <= 0 {
			delete(s.waiting, id)
		}
	}
}

// settle acknowledges an end that an answer carries. It is done before the
// answer is sent: if that is lost, so is the connection, and all with it.
func (s *server) settle(ctx context.Context, rec *handles.Record, batch string) error {
	if batch == "" {
		return nil
	}
	_, err := s.c.Acknowledge(context.WithoutCancel(ctx), rec.SessionID, wire.Acknowledge{Batch: batch})
	return err
}

// giveBack puts an end back into the inbox that a cancelled call may have taken.
func (s *server) giveBack(id handles.ID) error {
	ctx, cancel := context.WithTimeout(s.life, closeTime)
	defer cancel()
	w, err := s.c.WaitTake(ctx, string(id), -1)
	if err != nil || w.Batch == "" {
		return err
	}
	_, err = s.c.Acknowledge(ctx, w.Record.SessionID, wire.Acknowledge{Batch: w.Batch, Outcome: "returned"})
	return err
}

// reclaim puts back what calls took that are not there any more. It reports
// whether there was something.
func (s *server) reclaim(ctx context.Context) bool {
	p, err := s.c.Pending(ctx, true)
	if err != nil {
		return false
	}
	some := false
	for _, c := range p.Items {
		s.mu.Lock()
		astray := c.Batch != "" && s.waiting[c.HandleID] == 0 && !s.handed[c.Batch]
		s.mu.Unlock()
		some = astray && s.giveBack(c.HandleID) == nil || some
	}
	return some
}
