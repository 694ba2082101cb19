//go:build linux

package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// A besieged daemon is asked for hello all the time, which it must answer
// within a second, and holds as many descriptors and goroutines afterwards.
type besieged struct {
	*daemon
	pid    int // of the supervisor
	fds    int
	stop   chan struct{}
	probe  sync.WaitGroup
	worst  time.Duration // guarded by probe
	handle handles.ID    // of a run that goes on
}

func besiege(t *testing.T) *besieged {
	t.Helper()
	b := &besieged{daemon: startDaemon(t, shortDir(t)), stop: make(chan struct{})}
	a, err := b.Start(t.Context(), wire.Start{Command: []string{"/bin/sleep", "600"}, Session: "x", Lease: "service"})
	if err != nil {
		t.Fatal(err)
	}
	hello, err := b.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.handle, b.pid = a.HandleID, hello.PID
	b.fds = len(b.open())
	b.probe.Go(func() {
		for {
			select {
			case <-b.stop:
				return
			default:
			}
			began := time.Now()
			text, err := b.talk("GET /v1/hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", false)
			if err != nil || !strings.HasPrefix(text, "HTTP/1.1 200") {
				t.Errorf("hello: %.100q, %v", text, err)
			}
			b.worst = max(b.worst, time.Since(began))
		}
	})
	return b
}

// over checks what is left of a siege.
func (b *besieged) over(t *testing.T) {
	t.Helper()
	close(b.stop)
	b.probe.Wait()
	if b.worst > time.Second {
		t.Errorf("hello took up to %v", b.worst)
	}
	if !waitFor(5*time.Second, func() bool { return len(b.open()) <= b.fds }) {
		t.Errorf("%d descriptors, %d before: %v", len(b.open()), b.fds, b.open())
	}
	if hello, err := b.Hello(t.Context()); err != nil || hello.PID != b.pid || hello.Live != 1 {
		t.Errorf("afterwards: %+v, %v; supervisor %d was to go on with one run", hello, err, b.pid)
	}
	n := b.goroutines(t)
	t.Logf("hello took at most %v; %d goroutines, %d of connections", b.worst, n["all"], n["serve"])
	if n["serve"] > 2 || n["all"] > 60 {
		t.Errorf("goroutines are left: %v", n)
	}
}

// open is what the supervisor has open, but for the journal, whose readers are
// as many as there were requests at once, up to a limit of its own.
func (b *besieged) open() (list []string) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", b.pid))
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && !strings.Contains(to, "/journal.db") {
			list = append(list, to)
		}
	}
	return list
}

// goroutines are those of the supervisor, which dies of telling them.
func (b *besieged) goroutines(t *testing.T) map[string]int {
	t.Helper()
	before, err := b.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(b.pid, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	for now := before; now.Generation == before.Generation; {
		if now, err = b.Hello(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.ReadFile(filepath.Join(b.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{"all": len(goroutine.FindAll(log, -1)), "serve": strings.Count(string(log), "net/http.(*conn).serve(")}
	if n["all"] == 0 {
		t.Error("it did not tell its goroutines")
	}
	return n
}

var goroutine = regexp.MustCompile(`(?m)^goroutine \d+`)

// talk sends a text on a connection of its own and returns all of the answer.
func (b *besieged) talk(text string, halfClose bool) (string, error) {
	c, err := net.Dial("unix", b.socket())
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, text); err != nil && !halfClose {
		return "", err // else it was refused before it was read
	}
	if halfClose {
		_ = c.(*net.UnixConn).CloseWrite()
	}
	all, err := io.ReadAll(c)
	if err != nil && len(all) > 0 {
		err = nil // cut off behind its answer
	}
	return string(all), err
}

// typed checks that an answer is an error with a code, which is none of ours.
func typed(text string) error {
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		return err
	}
	var e handles.Error
	if err := json.NewDecoder(res.Body).Decode(&e); err != nil {
		return fmt.Errorf("%d: %w", res.StatusCode, err)
	}
	if res.StatusCode < 400 || res.StatusCode == 500 || e.Code == "" || e.Code == handles.CodeInternal || e.Message == "" {
		return fmt.Errorf("%d %+v", res.StatusCode, e)
	}
	return nil
}

// An operation is one kind of request, as the daemon itself lists them.
type operation struct {
	method, path string
	body         bool
}

func (b *besieged) operations(t *testing.T) (list []operation) {
	t.Helper()
	text, err := b.talk("GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", false)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Paths map[string]map[string]struct{ RequestBody any }
	}
	if err := json.NewDecoder(res.Body).Decode(&api); err != nil {
		t.Fatal(err)
	}
	for path, methods := range api.Paths {
		for method, o := range methods {
			list = append(list, operation{strings.ToUpper(method), path, o.RequestBody != nil})
		}
	}
	slices.SortFunc(list, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	if len(list) < 35 {
		t.Fatalf("%d operations", len(list))
	}
	return list
}

func (o operation) request(handle, body string) string {
	path := strings.NewReplacer("{h}", handle, "{s}", "x", "{g}", "g").Replace(o.path)
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", o.method, path)
	if o.body {
		text += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	} else {
		body = ""
	}
	return text + "\r\n" + body
}

// inParallel does something with each of many, a few at a time.
func inParallel[T any](list []T, do func(int, T)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range 2 * runtime.NumCPU() {
		workers.Go(func() {
			for i := range next {
				do(i, list[i])
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	workers.Wait()
}

// Every kind of request, cut at every byte: a typed error or a closed
// connection, and nothing happens.
func TestRequestsCutAtEveryByte(t *testing.T) {
	b := besiege(t)
	var cuts []string
	for _, o := range b.operations(t) {
		text := o.request(string(b.handle), `{"command":["/bin/true"],"reason":"ü"}`)
		for n := range len(text) {
			cuts = append(cuts, text[:n])
		}
	}
	inParallel(cuts, func(i int, text string) {
		if i%4 == 0 { // gone without a word
			if c, err := net.Dial("unix", b.socket()); err == nil {
				_, _ = io.WriteString(c, text)
				c.Close()
			}
			return
		}
		answer, err := b.talk(text, true)
		if err == nil && answer != "" {
			err = typed(answer)
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
	t.Logf("%d requests", len(cuts))
	b.over(t)
}

// Bodies of wrong types, too deep, broken or huge, and ids that are none.
func TestBodiesAndIDsThatAreNone(t *testing.T) {
	b := besiege(t)
	bodies := []string{
		`[]`, `"x"`, `7`, `{`, "\x00\xff\xfe", `{"command":[null,5],"reason":5,"by":{},"name":7,"batch":[],"pattern":1,"signal":1,"max":[],"handle_id":[]}`, `{"grace_ms":"soon","command":{},"name":[],"batch":7,"pattern":{},"signal":[],"max":"x","handle_id":1}`,
		strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000), `{"wait_ms":1e999,"grace_ms":1e999,"events":1e999,"max":1e999,"bind_pid":1e999,"timeout_ms":1e999}`,
	}
	var requests []string
	for _, o := range b.operations(t) {
		if strings.Contains(o.path, "{h}") { // only where the id is looked at first
			for _, id := range []string{"hto-", "hto-00000000000000000000000000", "%00", "%FF", "no.such", "..%2F..", strings.Repeat("x", 8000), "%F0%9F%92%A5", "hto-%25"} {
				requests = append(requests, o.request(id, `{"signal":"TERM","pattern":"x"}`))
			}
		}
		for _, body := range bodies {
			if o.body && !strings.HasSuffix(o.path, "/stdin") {
				requests = append(requests, o.request(string(b.handle), body))
			}
		}
	}
	inParallel(requests, func(_ int, text string) {
		answer, err := b.talk(text, false)
		if err == nil {
			err = typed(answer)
		}
		if err != nil {
			t.Errorf("%.250q: %v\n%.300s", text, err, answer)
		}
	})
	t.Logf("%d requests", len(requests))
	b.over(t)
}

// Fields of a newer client are ignored by each operation that takes a body.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	b := besiege(t)
	for _, c := range [][2]string{
		{wire.PathSessions, `{"name":"y","later":1}`}, {wire.PathHandles, `{"command":["/bin/true"],"env":[],"session":"y","later":{"a":[1]}}`},
		{"/v1/sessions/y/take", `{"later":1}`}, {"/v1/sessions/y/scopes", `{"name":"g","later":1}`}, {"/v1/sessions/y/clear", `{"later":1}`},
		{"/v1/handles/" + string(b.handle) + "/signal", `{"signal":"CONT","later":1}`},
	} {
		path, body := c[0], c[1]
		text := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
		if answer, err := b.talk(text, false); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 20") {
			t.Errorf("%s %s: %v\n%s", path, body, err, answer)
		}
	}
	b.fds++ // we may have taken something, and then we are watched
	b.over(t)
}

// 500 clients at once, each with a start, a wait and an end: all are answered.
func TestManyClientsAtOnce(t *testing.T) {
	b := besiege(t)
	req := wire.Start{Command: []string{"/bin/sh", "-c", `while ! [ -e "$0" ]; do sleep 0.05; done`, filepath.Join(b.dir, "go")}, Env: []string{"PATH=/usr/bin:/bin"}, Session: "x", Lease: "service"}
	a, err := b.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var clients, asked sync.WaitGroup
	for i := range 500 {
		asked.Add(1)
		clients.Go(func() {
			c := client.New(client.Config{Socket: b.socket(), Session: "x", State: b.state(), Patience: 30 * time.Second})
			defer c.Close()
			_, err := c.Show(t.Context(), string(a.HandleID))
			if err == nil && i%50 == 0 {
				_, err = c.Start(t.Context(), wire.Start{Command: []string{"/bin/true"}, Lease: "service"})
			}
			asked.Done()
			var w *wire.Waited
			if err == nil {
				w, err = c.Wait(t.Context(), string(a.HandleID), 0)
			}
			if err != nil || w.Record.Status != handles.Completed {
				t.Errorf("client %d: %+v, %v", i, w, err)
			}
		})
	}
	asked.Wait()
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	clients.Wait()
	if _, err := b.Idle(t.Context(), 0, nil); err != nil {
		t.Error(err)
	}
	b.over(t)
}
