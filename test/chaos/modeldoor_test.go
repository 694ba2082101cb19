//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// A taker takes from the inbox of its session.
type taker interface {
	Take(ctx context.Context, req wire.Take) (*wire.Batch, error)
	WaitTake(ctx context.Context, ref string, timeout time.Duration) (*wire.Waited, error)
}

// A caller is one reader in one session: a *client.Client, or the same without a
// socket.
type caller interface {
	taker
	Start(ctx context.Context, req wire.Start) (*wire.Started, error)
	Run(ctx context.Context, req wire.Start, started func(*wire.Started)) (*handles.Record, error)
	Cancel(ctx context.Context, ref string, req wire.Cancel) (*wire.Cancelled, error)
	Restart(ctx context.Context, ref string, req wire.Cancel) (*wire.Started, error)
	Wait(ctx context.Context, ref string, timeout time.Duration) (*wire.Waited, error)
	Show(ctx context.Context, ref string) (*handles.Record, error)
	Pending(ctx context.Context, items bool) (*wire.Pending, error)
	Acknowledge(ctx context.Context, session string, req wire.Acknowledge) (*wire.Acknowledged, error)
	Deliveries(ctx context.Context, limit int) (*wire.Deliveries, error)
	Idle(ctx context.Context, wait time.Duration, expect []handles.ID) (*wire.Idle, error)
	OpenScope(ctx context.Context, name, parent string) (*handles.Scope, error)
	CancelScope(ctx context.Context, name string, req wire.EndSession) (*wire.ScopeReport, error)
	OpenSession(ctx context.Context, req wire.OpenSession) (*handles.Session, error)
	ShowSession(ctx context.Context, name string) (*handles.Session, error)
	CloseSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error)
	ClearSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error)
	ResetSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error)
	DeleteSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error)
	ShutdownSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error)
}

var _ caller = (*client.Client)(nil)

// A house is what callers talk to.
type house interface {
	as(reader, session string) caller
	mortal(t *testing.T) mortal
	restart(t *testing.T)    // in good order
	ends() bool              // its commands end with it
	kill(t *testing.T) error // SIGKILL; returns when its successor answers
}

// A mortal is a reader in a process of its own.
type mortal interface {
	as(session string) taker
	die()
}

// embedded is a supervisor in this process, without a keeper.
type embedded struct {
	*supervisor.Supervisor
	dir string
}

func newEmbedded(t *testing.T) *embedded {
	e := &embedded{dir: t.TempDir()}
	e.open(t)
	return e
}

func (e *embedded) open(t *testing.T) {
	var err error
	if e.Supervisor, err = supervisor.Open(context.Background(), supervisor.Config{Dir: e.dir}); err != nil {
		t.Fatal(err)
	}
}

func (e *embedded) restart(t *testing.T) {
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e.open(t)
}

func (e *embedded) ends() bool            { return true }
func (e *embedded) kill(*testing.T) error { panic("it is this process") }

func (e *embedded) as(reader, session string) caller {
	me, err := platform.Identify(os.Getpid())
	if err != nil {
		panic(err)
	}
	return &inside{e, session, supervisor.Caller{Process: me, Reader: reader}}
}

func (e *embedded) mortal(t *testing.T) mortal {
	cmd := exec.Command("/bin/sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := platform.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return &sleeper{e, cmd, id}
}

// A sleeper is a process on whose behalf this one asks.
type sleeper struct {
	e   *embedded
	cmd *exec.Cmd
	id  platform.Identity
}

func (s *sleeper) as(session string) taker {
	return &inside{s.e, session, supervisor.Caller{Process: s.id}}
}

func (s *sleeper) die() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// served is a daemon, with a client for each reader and session.
type served struct {
	*daemon
	clients map[[2]string]*client.Client
}

func newServed(t *testing.T) *served {
	return &served{startDaemon(t, shortDir(t)), map[[2]string]*client.Client{}}
}

func (s *served) as(reader, session string) caller {
	key := [2]string{reader, session}
	if s.clients[key] == nil {
		s.clients[key] = client.New(client.Config{Socket: s.socket(), State: s.state(), Session: session, Patience: 20 * time.Second})
	}
	return s.clients[key]
}

func (s *served) ends() bool { return false }

func (s *served) restart(t *testing.T) {
	if err := s.Replace(context.Background(), ""); err != nil {
		t.Fatal(err)
	}
}

func (s *served) kill(*testing.T) error {
	ctx := context.Background()
	before, err := s.Hello(ctx)
	if err != nil {
		return err
	}
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		return err
	}
	for {
		now, err := s.Hello(ctx)
		if err != nil || now.Generation > before.Generation {
			return err
		}
	}
}

func (s *served) mortal(t *testing.T) mortal {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), readerEnv+"="+s.socket())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &stranger{cmd, json.NewEncoder(in), json.NewDecoder(out)}
}

// A stranger is this test binary again, which takes what it is told to take.
type stranger struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
}

func (s *stranger) die() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *stranger) as(session string) taker { return &strangerIn{s, session} }

type strangerIn struct {
	*stranger
	session string
}

type order struct {
	Session string
	Max     int
	Ref     string // "" = Take
}

type outcome struct {
	Batch  *wire.Batch
	Waited *wire.Waited
	Err    *handles.Error
}

func (s *strangerIn) ask(o order) (a outcome, err error) {
	if err := s.in.Encode(o); err != nil {
		return a, err
	}
	if err := s.out.Decode(&a); err != nil {
		return a, err
	}
	if a.Err != nil {
		return a, a.Err
	}
	return a, nil
}

func (s *strangerIn) Take(_ context.Context, req wire.Take) (*wire.Batch, error) {
	a, err := s.ask(order{Session: s.session, Max: req.Max})
	return a.Batch, err
}

func (s *strangerIn) WaitTake(_ context.Context, ref string, _ time.Duration) (*wire.Waited, error) {
	a, err := s.ask(order{Session: s.session, Ref: ref})
	return a.Waited, err
}

const readerEnv = "PROCSUP_CHAOS_READER"

// readerMain is a stranger's life: it ends with its stdin.
func readerMain(socket string) int {
	clients := map[string]*client.Client{}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o order
		if err := in.Decode(&o); err == io.EOF {
			return 0
		} else if err != nil {
			return 1
		}
		if clients[o.Session] == nil {
			clients[o.Session] = client.New(client.Config{Socket: socket, State: filepath.Join(filepath.Dir(socket), "state"), Session: o.Session, Patience: 20 * time.Second})
		}
		var a outcome
		var err error
		if o.Ref == "" {
			a.Batch, err = clients[o.Session].Take(context.Background(), wire.Take{Max: o.Max})
		} else {
			a.Waited, err = clients[o.Session].WaitTake(context.Background(), o.Ref, -1)
		}
		if err != nil {
			a.Err = &handles.Error{Code: codeOf(err), Message: err.Error()}
		}
		if out.Encode(a) != nil {
			return 1
		}
	}
}
