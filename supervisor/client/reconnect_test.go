package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// whenAsked makes the daemon say when a request for path is in its hands.
func (d *daemon) whenAsked(t testing.TB, path string) <-chan struct{} {
	t.Helper()
	asked := make(chan struct{}, 100)
	d.hangUp()
	d.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, path) {
			asked <- struct{}{}
		}
		d.door.ServeHTTP(w, r)
	})
	d.listen(t)
	return asked
}

// S2-18, A7, G23: every wait survives that the daemon goes away, for a while
// with nobody listening, and comes back.
func TestS2_18_WaitsSurviveARestart(t *testing.T) {
	d := newDaemon(t)
	for name, wait := range map[string]func(c *client.Client, h string) error{
		"wait": func(c *client.Client, h string) error {
			w, err := c.Wait(t.Context(), h, long)
			if err == nil && (w.Status != wire.WaitError || *w.Record.ExitCode != 3) {
				err = fmt.Errorf("%s", asJSON(w))
			}
			return err
		},
		"wait-output": func(c *client.Client, h string) error {
			w, err := c.WaitOutput(t.Context(), h, wire.WaitOutput{Pattern: "done", TimeoutMS: 60_000})
			if err == nil && w.Status != wire.Matched {
				err = fmt.Errorf("%s", asJSON(w))
			}
			return err
		},
		"cancel": func(c *client.Client, h string) error {
			k, err := c.Cancel(t.Context(), h, wire.Cancel{})
			if err == nil && !k.Record.Status.Terminal() {
				err = fmt.Errorf("%s", asJSON(k))
			}
			return err
		},
	} {
		asked := d.whenAsked(t, "/"+name)
		c := d.client(t, nil)
		grace := int64(300) // cancel takes that long
		h := start(t, c, func(r *wire.Start) { r.Stdin, r.GraceMS = "pipe", &grace }, "sh", "-c", "trap '' TERM; read x; echo done; exit 3")
		result := make(chan error, 1)
		go func() { result <- wait(c, string(h.HandleID)) }() // ends with the run
		<-asked
		for range 3 {
			d.hangUp()
			d.listen(t)
			select {
			case <-asked:
			case err := <-result: // a cancel may be done by now
				result <- err
			}
		}
		if name != "cancel" {
			if _, err := d.client(t, nil).Send(t.Context(), string(h.HandleID), []byte("go\n"), true); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-result; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A followed output survives it too: every byte once.
func TestS2_18_OutputSurvivesARestart(t *testing.T) {
	d := newDaemon(t)
	c := d.client(t, nil)
	script := `i=0; while read x; do i=$((i+1)); echo line $i; done`
	h := start(t, c, func(r *wire.Start) { r.Stdin = "pipe" }, "sh", "-c", script)
	other := d.client(t, nil)
	lines := make(chan string, 100)
	w := writer(func(b []byte) { lines <- string(b) })
	result := make(chan error, 1)
	go func() { // ends with the run
		result <- c.Output(t.Context(), string(h.HandleID), wire.OutputQuery{Source: "stdout", Follow: true}, w, nil, nil)
	}()
	for i := 1; i <= 10; i++ {
		if _, err := other.Send(t.Context(), string(h.HandleID), []byte("x\n"), i == 10); err != nil {
			t.Fatal(err)
		}
		if got, want := <-lines, fmt.Sprintf("line %d\n", i); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		if i%3 == 0 {
			d.hangUp()
			d.listen(t)
		}
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
	if len(lines) > 0 {
		t.Errorf("more: %q", <-lines)
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// A daemon that does not come back is waited for no longer than patience lasts;
// where none ever answered nothing is waited for.
func TestPatience(t *testing.T) {
	d := newDaemon(t)
	c := d.client(t, func(cfg *client.Config) { cfg.Patience = 50 * time.Millisecond })
	h := start(t, c, nil, "sleep", "100")
	asked := d.whenAsked(t, "/wait")
	result := make(chan error, 1)
	go func() { // ends when the client gives up
		_, err := c.Wait(t.Context(), string(h.HandleID), 0)
		result <- err
	}()
	<-asked
	d.hangUp() // the socket stays, nobody listens
	if err := <-result; !errors.Is(err, client.ErrNoDaemon) {
		t.Errorf("a daemon that is gone: %v", err)
	}
	for name, socket := range map[string]string{"refused": d.socket, "missing": filepath.Join(filepath.Dir(d.socket), "nothing")} {
		fresh := client.New(client.Config{Socket: socket, Patience: time.Hour})
		_, err := fresh.Start(t.Context(), wire.Start{Command: []string{"x"}})
		if !errors.Is(err, client.ErrNoDaemon) || errors.Is(err, handles.ErrOutcomeUnknown) || !strings.Contains(err.Error(), socket) {
			t.Errorf("%s: %v", name, err)
		}
		fresh.Close()
	}
	d.listen(t)
}

// The path that the daemon recorded is tried where the own one leads nowhere.
func TestRecordedSocket(t *testing.T) {
	d := newDaemon(t)
	if err := os.WriteFile(filepath.Join(d.state, "socket"), []byte(d.socket+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := client.New(client.Config{Socket: filepath.Join(t.TempDir(), "elsewhere"), State: d.state})
	defer c.Close()
	if h, err := c.Hello(t.Context()); err != nil || h.StateDir != d.state {
		t.Errorf("hello %+v, %v", h, err)
	}
}

// G15: a caller that stops waiting stops nothing, and leaves nothing behind.
func TestGivingUpAWaitEndsNothing(t *testing.T) {
	d := newDaemon(t)
	asked := d.whenAsked(t, "/wait")
	c := d.client(t, nil)
	h := start(t, c, nil, "sleep", "100")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-asked; cancel(why) }() // ends with the wait
	if _, err := c.Wait(ctx, string(h.HandleID), 0); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	w, err := c.Wait(t.Context(), string(h.HandleID), -1)
	if err != nil || w.Status != wire.WaitPending || w.Record.Liveness != "live" {
		t.Errorf("afterwards %s, %v", asJSON(w), err)
	}
}

// The timeout of a wait bounds the whole of it, however often it is broken.
func TestS3_31_TheTimeoutSpansRestarts(t *testing.T) {
	d := newDaemon(t)
	var got []string
	asked := make(chan struct{}, 10)
	d.hangUp()
	d.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v := r.URL.Query().Get("timeout_ms"); v != "" {
			got = append(got, v)
			asked <- struct{}{}
		}
		d.door.ServeHTTP(w, r)
	})
	d.listen(t)
	c := d.client(t, nil)
	h := start(t, c, nil, "sleep", "100")
	go func() { <-asked; d.srv.Close() }() // ends with the first try
	go func() { <-d.done; d.listen(t) }()
	w, err := c.Wait(t.Context(), string(h.HandleID), 300*time.Millisecond)
	if err != nil || w.Status != wire.WaitTimeout {
		t.Errorf("wait %s, %v", asJSON(w), err)
	}
	if len(got) != 2 || got[0] != "300" || len(got[1]) > 3 || got[1] >= "300" {
		t.Errorf("timeouts asked for %q, want 300 and less", got)
	}
}

// One connection carries one call after the other; a kept one that has died is
// noticed before it is used.
func TestConnectionsAreKept(t *testing.T) {
	d := newDaemon(t)
	var conns atomic.Int32
	d.hangUp()
	d.connState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	d.listen(t)
	c := d.client(t, func(cfg *client.Config) { cfg.Patience = -1 })
	hello := func() {
		t.Helper()
		if _, err := c.Hello(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h := start(t, c, nil, "sh", "-c", "echo hello; exec sleep 100")
	var out bytes.Buffer
	for range 20 {
		hello()
		if _, err := c.Show(t.Context(), "nobody"); !errors.Is(err, handles.ErrNotFound) {
			t.Fatal(err)
		}
		if err := c.Output(t.Context(), string(h.HandleID), wire.OutputQuery{}, &out, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for calls one after the other", n)
	}
	d.hangUp()
	d.listen(t)
	hello() // with no patience: it must not have been tried on the dead one
}

// Many goroutines share a client.
func TestConcurrentCalls(t *testing.T) {
	d := newDaemon(t)
	c := d.client(t, nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			a, err := c.Start(t.Context(), wire.Start{Command: []string{"sh", "-c", fmt.Sprintf("exit %d", i)}, Env: os.Environ()})
			if err != nil {
				t.Error(err)
				return
			}
			w, err := c.Wait(t.Context(), string(a.HandleID), long)
			if err != nil || *w.Record.ExitCode != i {
				t.Errorf("run %d: %s, %v", i, asJSON(w), err)
			}
		})
	}
	all.Wait()
}

// What JSON would change is refused, not changed.
func TestBytesThatAreNotUTF8(t *testing.T) {
	c := client.New(client.Config{Socket: "/nowhere"})
	for field, req := range map[string]wire.Start{
		"command": {Command: []string{"ls", "caf\xe9"}},
		"env":     {Command: []string{"ls"}, Env: []string{"A=\xff"}},
		"dir":     {Command: []string{"ls"}, Dir: "/\xff"},
	} {
		var e *handles.Error
		if _, err := c.Start(t.Context(), req); !errors.As(err, &e) || e.Code != handles.CodeInvalid || e.ID != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
