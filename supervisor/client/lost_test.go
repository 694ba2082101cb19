package client_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// fake is a socket on which each connection, numbered from 1, is treated as the
// test says.
func fake(t testing.TB, serve func(n int, c net.Conn)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ps")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // ends with the listener
		defer close(done)
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(n, c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return path
}

// request reads one request with its body.
func request(t testing.TB, c net.Conn) (*http.Request, string) {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		t.Errorf("read request: %v", err)
		return &http.Request{}, ""
	}
	b, err := io.ReadAll(req.Body)
	if err != nil {
		t.Errorf("read body: %v", err)
	}
	return req, string(b)
}

func keyOf(t testing.TB, body string) string {
	var s wire.Start
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Errorf("%q: %v", body, err)
	}
	return s.Idempotency
}

const okStarted = `{"handle_id":"hto-1","status":"running"}`

func answerWith(c net.Conn, status int, body string) {
	fmt.Fprintf(c, "HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// S3-61: a start whose answer is lost is asked for once more, with the same
// random key, on another connection.
func TestS3_61_ALostStartIsAskedForAgain(t *testing.T) {
	sent := make(chan string, 10)
	c := client.New(client.Config{Socket: fake(t, func(n int, c net.Conn) {
		_, body := request(t, c)
		sent <- keyOf(t, body)
		if n > 1 {
			answerWith(c, 200, okStarted)
		}
	})})
	defer c.Close()
	a, err := c.Start(t.Context(), wire.Start{Command: []string{"x"}})
	if err != nil || a.HandleID != "hto-1" {
		t.Fatalf("start %+v, %v", a, err)
	}
	if one, two := <-sent, <-sent; one != two || len(one) != 32 || len(sent) > 0 {
		t.Errorf("keys %q and %q, and %d more", one, two, len(sent))
	}
}

// S3-61: when that answer is lost too, the outcome is unknown: through a wrap
// and a join, with the hint to read again. Wherever the answer breaks off.
func TestS3_61_OutcomeUnknown(t *testing.T) {
	whole := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(okStarted), okStarted)
	for _, part := range []string{"", "HTTP/1.1 200", whole[:len(whole)-1], "garbage\r\n", strings.Replace(whole, "running", "runnin", 1)} {
		var tries atomic.Int32
		c := client.New(client.Config{Socket: fake(t, func(_ int, c net.Conn) {
			request(t, c)
			tries.Add(1)
			io.WriteString(c, part)
		})})
		_, err := c.Start(t.Context(), wire.Start{Command: []string{"x"}})
		c.Close()
		for how, e := range map[string]error{"direct": err, "wrapped": fmt.Errorf("create: %w", err), "joined": errors.Join(errors.New("other"), err)} {
			if !errors.Is(e, handles.ErrOutcomeUnknown) {
				t.Errorf("after %q, %s: %v is not %v", part, how, e, handles.ErrOutcomeUnknown)
			}
		}
		var he *handles.Error
		if !errors.As(err, &he) || he.Hint != "reread" || tries.Load() != 2 {
			t.Errorf("after %q: hint of %v, %d tries", part, err, tries.Load())
		}
	}
}

// A kept connection that the daemon closes just as it is used again does not
// use up the second try.
func TestS3_61_AKeptConnectionThatCloses(t *testing.T) {
	var starts atomic.Int32
	c := client.New(client.Config{Socket: fake(t, func(n int, c net.Conn) {
		r := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.Copy(io.Discard, req.Body)
			if req.Method == "POST" && starts.Add(1) < 3 {
				return
			}
			answerWith(c, 200, okStarted)
		}
	})})
	defer c.Close()
	if _, err := c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(t.Context(), wire.Start{Command: []string{"x"}}); err != nil || starts.Load() != 3 {
		t.Errorf("%v after %d tries", err, starts.Load())
	}
}

// What cannot be repeated is not: a signal, a restart, bytes for stdin.
func TestS3_61_NotRepeated(t *testing.T) {
	for name, call := range map[string]func(*client.Client) error{
		"signal": func(c *client.Client) error {
			_, err := c.Signal(t.Context(), "h", wire.Signal{Signal: "HUP"})
			return err
		},
		"restart": func(c *client.Client) error { _, err := c.Restart(t.Context(), "h", wire.Cancel{}); return err },
		"send":    func(c *client.Client) error { _, err := c.Send(t.Context(), "h", []byte("x"), false); return err },
	} {
		var tries atomic.Int32
		c := client.New(client.Config{Socket: fake(t, func(_ int, c net.Conn) { request(t, c); tries.Add(1) })})
		if err := call(c); !errors.Is(err, handles.ErrOutcomeUnknown) || tries.Load() != 1 {
			t.Errorf("%s: %v after %d tries", name, err, tries.Load())
		}
		c.Close()
	}
}

// S3-61: a second answer that does not say what became of the first try leaves
// it unknown; one that does is the answer.
func TestS3_61_TheSecondAnswerMaySettleIt(t *testing.T) {
	for code, unknown := range map[handles.Code]bool{handles.CodeDraining: true, handles.CodePersistence: true, handles.CodeInternal: true, handles.CodeNameTaken: false, handles.CodeInvalid: false} {
		c := client.New(client.Config{Socket: fake(t, func(n int, c net.Conn) {
			request(t, c)
			if n > 1 {
				answerWith(c, 503, `{"error":"`+string(code)+`","message":"m"}`)
			}
		})})
		_, err := c.Start(t.Context(), wire.Start{Command: []string{"x"}})
		if errors.Is(err, handles.ErrOutcomeUnknown) != unknown || !errors.Is(err, &handles.Error{Code: code}) {
			t.Errorf("%s: %v", code, err)
		}
		c.Close()
	}
}

// S3-61, S3-12: the connection drops after the commit; reading again shows one
// run, and the second try got the first answer.
func TestS3_61_CommittedBeforeTheConnectionDropped(t *testing.T) {
	d := newDaemon(t)
	var drop atomic.Int32
	d.hangUp()
	d.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" && drop.Add(-1) >= 0 {
			d.door.ServeHTTP(discard{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		}
		d.door.ServeHTTP(w, r)
	})
	d.listen(t)
	c := d.client(t, nil)
	drop.Store(1)
	a := start(t, c, nil, "sleep", "100")
	if !a.Replayed {
		t.Error("the second try was not answered from the first")
	}
	drop.Store(3) // the first of them on the connection that is kept
	_, err := c.Start(t.Context(), wire.Start{Command: []string{"sleep", "100"}, Env: os.Environ(), Name: "second"})
	if !errors.Is(err, handles.ErrOutcomeUnknown) {
		t.Errorf("both answers lost: %v", err)
	}
	l, err := c.List(t.Context(), client.Filter{Live: true})
	if err != nil || len(l.Handles) != 2 || l.Handles[0].Name != "second" || l.Handles[1].HandleID != a.HandleID {
		t.Errorf("reread: %s, %v", asJSON(l), err)
	}
}

// discard takes an answer that nobody gets.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// A caller that gives up during a start does not know either.
func TestS3_61_GivingUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	c := client.New(client.Config{Socket: fake(t, func(_ int, c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c)) // the second caller may have hung up already
		cancel(why)
		io.Copy(io.Discard, c) // until the client hangs up
	})})
	defer c.Close()
	_, err := c.Start(ctx, wire.Start{Command: []string{"x"}})
	if !errors.Is(err, handles.ErrOutcomeUnknown) || !errors.Is(err, why) {
		t.Errorf("got %v, want an unknown outcome because of %v", err, why)
	}
	_, err = c.Show(ctx, "h")
	if !errors.Is(err, why) || errors.Is(err, handles.ErrOutcomeUnknown) {
		t.Errorf("a read: got %v, want only %v", err, why)
	}
}

// A daemon that dies of the request itself, each time, is not asked for ever.
func TestAnswersBrokenOffAtOnce(t *testing.T) {
	c := client.New(client.Config{Patience: 100 * time.Millisecond, Socket: fake(t, func(_ int, c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
	})})
	defer c.Close()
	for name, ask := range map[string]func() error{
		"show":   func() error { _, err := c.Show(t.Context(), "h"); return err },
		"output": func() error { return c.Output(t.Context(), "h", wire.OutputQuery{Follow: true}, io.Discard, nil, nil) },
	} {
		if err := ask(); err == nil || errors.Is(err, handles.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "has broken off each answer for 100ms") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// S3-49: "starting" is waited out, within the bound.
func TestS3_49_StartingIsWaitedOut(t *testing.T) {
	var tries atomic.Int32
	path := fake(t, func(_ int, c net.Conn) {
		request(t, c)
		if tries.Add(1) < 5 {
			answerWith(c, 503, `{"error":"starting","message":"m"}`)
			return
		}
		answerWith(c, 200, okStarted)
	})
	c := client.New(client.Config{Socket: path})
	defer c.Close()
	if _, err := c.Start(t.Context(), wire.Start{Command: []string{"x"}}); err != nil || tries.Load() != 5 {
		t.Errorf("%v after %d tries", err, tries.Load())
	}
	tries.Store(-1 << 30)
	hasty := client.New(client.Config{Socket: path, Patience: 20 * time.Millisecond})
	defer hasty.Close()
	if _, err := hasty.Hello(t.Context()); !errors.Is(err, handles.ErrStarting) {
		t.Errorf("out of patience: %v", err)
	}
}

// An answer that is no JSON of ours still says what happened.
func TestAStrangeRefusal(t *testing.T) {
	c := client.New(client.Config{Socket: fake(t, func(_ int, c net.Conn) {
		request(t, c)
		answerWith(c, 431, "Request Header Fields Too Large")
	})})
	defer c.Close()
	_, err := c.Hello(t.Context())
	if !errors.Is(err, handles.ErrInvalid) || !strings.Contains(err.Error(), "Header Fields") {
		t.Errorf("got %v", err)
	}
}

// A request larger than the server takes is refused with its reason although
// the server stops reading.
func TestTooLargeARequest(t *testing.T) {
	d := newDaemon(t)
	c := d.client(t, nil)
	_, err := c.Start(t.Context(), wire.Start{Command: []string{"true", string(bytes.Repeat([]byte("x"), 17<<20))}, Env: []string{}})
	if !errors.Is(err, handles.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "MiB") {
		t.Errorf("got %.200v", err)
	}
	if _, err := c.Hello(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
