package client_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"procsup/supervisor"
	"procsup/supervisor/api"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A daemon is a supervisor without keeper behind a real socket.
type daemon struct {
	s      *supervisor.Supervisor
	door   *api.Door
	socket string
	state  string
	srv    *http.Server
	done   chan struct{}

	handler   http.Handler // in front of the door
	connState func(net.Conn, http.ConnState)
}

// newDaemon starts one; its Cleanup ends it and all commands.
func newDaemon(t testing.TB) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "ps") // a short path: sockets need one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &daemon{socket: filepath.Join(dir, "sock"), state: filepath.Join(dir, "state")}
	d.s, err = supervisor.Open(context.Background(), supervisor.Config{Dir: d.state})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.s.Close(); err != nil {
			t.Error(err)
		}
	})
	d.door = api.New(d.s)
	d.handler = d.door
	d.listen(t)
	t.Cleanup(func() { d.hangUp() })
	return d
}

// listen begins to serve on the socket.
func (d *daemon) listen(t testing.TB) {
	t.Helper()
	os.Remove(d.socket)
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as a daemon that is killed leaves it
	srv, done := &http.Server{Handler: d.handler, ConnContext: api.ConnContext, ConnState: d.connState}, make(chan struct{})
	d.srv, d.done = srv, done
	go func() { // ends with the server
		defer close(done)
		_ = srv.Serve(l)
	}()
}

// hangUp closes the listener and every connection, as a SIGKILL does.
func (d *daemon) hangUp() {
	d.srv.Close()
	<-d.done
}

func (d *daemon) client(t testing.TB, change func(*client.Config)) *client.Client {
	cfg := client.Config{Socket: d.socket}
	if change != nil {
		change(&cfg)
	}
	c := client.New(cfg)
	t.Cleanup(func() { c.Close() })
	return c
}

func start(t testing.TB, c *client.Client, change func(*wire.Start), argv ...string) *wire.Started {
	t.Helper()
	req := wire.Start{Command: argv, Env: os.Environ()}
	if change != nil {
		change(&req)
	}
	a, err := c.Start(t.Context(), req)
	if err != nil {
		t.Fatalf("start %q: %v", argv, err)
	}
	return a
}

func asJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

const long = time.Minute
