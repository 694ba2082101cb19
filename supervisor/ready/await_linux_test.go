package ready

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/pgroup"
	"procsup/platform"
)

const long = 20 * time.Second

func parse(t *testing.T, text string) Cond {
	t.Helper()
	c, err := Parse(text, "/")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// begun starts a wait and returns once it has failed a first time.
func begun(t *testing.T, p *Place, text string, gone bool) (done <-chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	t.Cleanup(cancel)
	first, end := make(chan struct{}), make(chan error, 1)
	tried := false
	c := parse(t, text)
	go func() { // ends with the wait
		end <- p.Await(ctx, c, gone, func(error) {
			if !tried {
				tried = true
				close(first)
			}
		})
	}()
	select {
	case <-first:
	case err := <-end:
		t.Fatalf("%s: it was over at once: %v", text, err)
	}
	return end
}

func over(t *testing.T, what string, done <-chan error) {
	t.Helper()
	if err := <-done; err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// fails looks once and wants a reason.
func fails(t *testing.T, text, why string) {
	t.Helper()
	var got error
	p := &Place{Once: true}
	if err := p.Await(t.Context(), parse(t, text), false, func(err error) { got = err }); !errors.Is(err, ErrNotNow) || got == nil || !strings.Contains(got.Error(), why) {
		t.Errorf("%s: %v, why %v, want %q", text, err, got, why)
	}
}

// freePort is one on which nobody listens.
func freePort(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skip("no ", host)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func TestTCP(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
		on := host
		if host == "localhost" { // any of its addresses
			on = "127.0.0.1"
		}
		addr := net.JoinHostPort(on, freePort(t, on))
		_, port, _ := net.SplitHostPort(addr)
		text := "tcp:" + net.JoinHostPort(host, port)
		fails(t, text, "connection refused")
		done := begun(t, &Place{}, text, false)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		over(t, text, done)
		gone := begun(t, &Place{}, text, true)
		l.Close()
		over(t, text+" gone", gone)
	}
	fails(t, "tcp:no-such-host.invalid:80", "look up no-such-host.invalid")
}

func TestUnix(t *testing.T) {
	dir := t.TempDir()
	for _, network := range []string{"unix", "unixpacket", "unixgram"} {
		for _, path := range []string{filepath.Join(dir, network), "@procsup-" + filepath.Base(dir) + network} {
			text := "unix:" + path
			done := begun(t, &Place{}, text, false)
			var l interface{ Close() error }
			var err error
			if network == "unixgram" {
				l, err = net.ListenUnixgram(network, &net.UnixAddr{Name: path, Net: network})
			} else {
				l, err = net.Listen(network, path)
			}
			if err != nil {
				t.Fatal(err)
			}
			over(t, text, done)
			l.Close()
		}
	}
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	fails(t, "unix:"+stale, "connection refused") // a socket that nobody listens on is not up
	fails(t, "unix:/etc/passwd", "connection refused")
}

func TestHTTP(t *testing.T) {
	status := make(chan int, 1)
	status <- 500
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" && (r.Method != "GET" || r.Host == "" || r.URL.Query().Get("a") != "b c") {
			t.Errorf("asked for %s %s at %s", r.Method, r.URL, r.Host)
		}
		code := <-status
		status <- code
		if code == 302 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(code)
	})
	set := func(code int) { <-status; status <- code }
	srv := httptest.NewServer(h)
	defer srv.Close()
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	fails(t, srv.URL, "status 500, want 2xx")
	done := begun(t, &Place{}, srv.URL+"/echo?a=b%20c", false)
	set(204)
	over(t, "2xx", done)
	done = begun(t, &Place{}, srv.URL+"/=404", false)
	set(404)
	over(t, "404", done)
	set(302) // no redirect is followed
	fails(t, srv.URL, "status 302, want 2xx")
	over(t, "302", once(t, srv.URL+"/=302"))

	sock := filepath.Join(t.TempDir(), "s")
	done = begun(t, &Place{}, "http://unix:"+sock+":/p=302", false)
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	u := &http.Server{Handler: h}
	go func() { _ = u.Serve(l) }() // ends below
	over(t, "unix", done)
	u.Close()
}

func once(t *testing.T, text string) <-chan error {
	t.Helper()
	end := make(chan error, 1)
	end <- (&Place{Once: true}).Await(t.Context(), parse(t, text), false, nil)
	return end
}

// A certificate that the system does not know is no answer.
func TestHTTPSIsVerified(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	srv.Config.ErrorLog = nil
	srv.StartTLS()
	defer srv.Close()
	fails(t, srv.URL, "certificate")
}

// What answers is not HTTP, answers interim first, hangs up, or says nothing.
func TestOddServers(t *testing.T) {
	for answer, why := range map[string]string{
		"SSH-2.0-x\r\n": "not HTTP", "": "unexpected EOF", "HTTP/1.1 abc\r\n": "not HTTP", "HTTP/1.1": "unexpected EOF",
		"HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.0 200\r\n\r\n": "",
		"HTTP/1.1 200 OK\n\n": "", "HTTP/1.1 " + strings.Repeat("x", 100_000): "unexpected EOF",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { // ends with the listener
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				buf := make([]byte, 4096)
				_, _ = conn.Read(buf)
				_, _ = conn.Write([]byte(answer))
				conn.Close()
			}
		}()
		if why == "" {
			over(t, answer, once(t, "http://"+l.Addr().String()+"/"))
		} else if len(answer) < 1000 {
			fails(t, "http://"+l.Addr().String()+"/", why)
		} else {
			fails(t, "http://"+l.Addr().String()+"/", "")
		}
		l.Close()
	}
}

// The end of the wait is the end of the try, at once.
func TestTheWaitsEndEndsTheTry(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"http://" + silent.Addr().String() + "/", "exec:sleep 1000 & echo $$ $! >" + fifo + "; wait"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		mine := errors.New("mine")
		end := make(chan error, 1)
		c := parse(t, text)
		go func() { end <- (&Place{}).Await(ctx, c, false, nil) }() // ends with ctx
		var pids []string
		if strings.HasPrefix(text, "exec") {
			b, err := os.ReadFile(fifo)
			if err != nil {
				t.Fatal(err)
			}
			pids = strings.Fields(string(b))
		} else if conn, err := silent.Accept(); err != nil {
			t.Fatal(err)
		} else {
			defer conn.Close()
		}
		began := time.Now()
		cancel(mine)
		if err := <-end; !errors.Is(err, mine) {
			t.Errorf("%s: %v", text, err)
		}
		if d := time.Since(began); d > long/4 {
			t.Errorf("%s: ended after %v", text, d)
		}
		for _, p := range pids {
			gone(t, p)
		}
	}
}

func TestExec(t *testing.T) {
	dir := t.TempDir()
	p := &Place{Dir: dir, Env: []string{"PATH=/usr/bin:/bin", "X=y"}}
	done := begun(t, p, `exec:test "$X" = y && test -f flag`, false)
	if err := os.WriteFile(filepath.Join(dir, "flag"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	over(t, "exec", done)
	fails(t, "exec:echo one; echo two >&2; exit 9", "exit 9: two")
	fails(t, "exec:kill -TERM $$", "ended by TERM")
	over(t, "gone", onceGone(t, "exec:false"))
	// What it left in its group goes with it.
	over(t, "leaves a child", once(t, "exec:sleep 1000 & echo $! >"+filepath.Join(dir, "pid")))
	b, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	gone(t, strings.TrimSpace(string(b)))
}

// What leaves its group goes with it too, where this process adopts orphans.
func TestExecLeavesNothing(t *testing.T) {
	sub, err := pgroup.BecomeSubreaper(true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := platform.UnsetSubreaper(); err != nil {
			t.Error(err)
		}
	}()
	for name, script := range map[string]string{
		"holds": "setsid sh -c 'echo $$ >pid; exec sleep 1000' & until [ -s pid ]; do :; done", "fails": "(setsid env -i /bin/sh -c 'echo $$ >pid; exec sleep 1000' &); until [ -s pid ]; do :; done; exit 1",
	} {
		dir := t.TempDir()
		p := &Place{Dir: dir, Env: []string{"PATH=/usr/bin:/bin"}, Subreaper: sub, Once: true}
		if err := p.Await(t.Context(), parse(t, "exec:"+script), false, nil); (err == nil) != (name == "holds") {
			t.Errorf("%s: %v", name, err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			t.Fatal(err)
		}
		gone(t, strings.TrimSpace(string(b)))
	}
}

// gone wants a process to have ended, or to do so now: a signal takes a moment.
func gone(t *testing.T, number string) {
	t.Helper()
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(long.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if n == 0 {
			t.Errorf("%d lives", pid)
		}
		return
	}
}

func onceGone(t *testing.T, text string) <-chan error {
	t.Helper()
	end := make(chan error, 1)
	end <- (&Place{Once: true}).Await(t.Context(), parse(t, text), true, nil)
	return end
}
