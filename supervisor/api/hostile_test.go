//go:build linux

package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// raw sends bytes on a connection of its own and reads one answer.
func (s *served) raw(t *testing.T, text string, halfClose bool) (*http.Response, handles.Error) {
	t.Helper()
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(long))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if halfClose {
		_ = c.(*net.UnixConn).CloseWrite()
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%.60q: %v", text, err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	var e handles.Error
	_ = json.Unmarshal(b, &e) // the caller looks at the code
	return res, e
}

// Slow, huge and truncated requests get typed errors and hold nothing.
func TestHostileRequests(t *testing.T) {
	d := New(newSupervisor(t))
	d.bodyTime = 50 * time.Millisecond
	s := serve(t, d)
	post := func(length int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", wire.PathHandles, length)
	}
	for name, c := range map[string]struct {
		text   string
		half   bool
		status int
	}{
		"a length beyond the limit": {post(maxBody + 1), false, http.StatusRequestEntityTooLarge},
		"never the rest":            {post(100) + `{"command":`, false, http.StatusRequestTimeout},
		"cut short":                 {post(100) + `{"command":`, true, http.StatusBadRequest},
		"a broken chunk": {"POST " + wire.PathHandles + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
			false, http.StatusBadRequest},
	} {
		res, e := s.raw(t, c.text, c.half)
		if res.StatusCode != c.status || e.Code != handles.CodeInvalid || e.Message == "" {
			t.Errorf("%s: got %d %+v, want %d", name, res.StatusCode, e, c.status)
		}
	}
	s = serve(t, NewDoor()) // more than the limit without saying so before
	chunk := strings.Repeat("x", 1<<20)
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", wire.PathHandles)
	for range maxBody>>20 + 1 {
		if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(chunk), chunk); err != nil {
			break
		}
	}
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("an endless body: %v, %v", res, err)
	}
	s.refused(t, "GET", wire.PathHello, "", handles.CodeStarting, http.StatusServiceUnavailable) // it still answers
}

// What net/http refuses by itself has a typed body too, as long as nothing was
// handled on that connection; after that its answers are its own, so that no
// byte of an answer of ours can be taken for one of them.
func TestRefusedBeforeAnyHandler(t *testing.T) {
	s := serve(t, NewDoor())
	get := "GET " + wire.PathHello + " HTTP/1.1\r\nHost: x\r\n"
	for name, c := range map[string]struct {
		text   string
		status int
		code   handles.Code
	}{
		"a broken request line":        {"HELLO\r\n\r\n", http.StatusBadRequest, handles.CodeInvalid},
		"no host":                      {"GET / HTTP/1.1\r\n\r\n", http.StatusBadRequest, handles.CodeInvalid},
		"a broken header":              {get + "no colon\r\n\r\n", http.StatusBadRequest, handles.CodeInvalid},
		"headers that are too large":   {get + "X: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge, handles.CodeInvalid},
		"an unknown transfer encoding": {get + "Transfer-Encoding: zip\r\n\r\n", http.StatusNotImplemented, handles.CodeUnsupported},
		"another version":              {"GET / HTTP/3.0\r\nHost: x\r\n\r\n", http.StatusHTTPVersionNotSupported, handles.CodeUnsupported},
		"an unknown expectation":       {get + "Expect: the best\r\n\r\n", http.StatusExpectationFailed, handles.CodeUnsupported},
		"an unknown method":            {"BREW /coffee HTTP/1.1\r\nHost: x\r\n\r\n", http.StatusNotFound, handles.CodeUnsupported},
		"no path":                      {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", http.StatusNotFound, handles.CodeUnsupported},
	} {
		res, e := s.raw(t, c.text, false)
		if res.StatusCode != c.status || e.Code != c.code || e.Message == "" || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %d %s %+v, want %d %s", name, res.StatusCode, res.Header.Get("Content-Type"), e, c.status, c.code)
		}
	}
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(long))
	fmt.Fprintf(c, "%s\r\nHELLO\r\n\r\n", get)
	r := bufio.NewReader(c)
	for i, want := range []int{http.StatusServiceUnavailable, http.StatusBadRequest} {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != want {
			t.Errorf("answer %d: %d, %v, want %d", i, res.StatusCode, err, want)
		}
	}
}

// Only our own user and root get in, whatever the modes of the socket allow.
func TestPeerUID(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl")
	}
	s := serve(t, New(newSupervisor(t)))
	for path, mode := range map[string]os.FileMode{filepath.Dir(s.socket): 0o755, s.socket: 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), curl, "-sS", "-w", "%{http_code}", "--unix-socket", s.socket, "http://x/v1/hello")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "403") || !strings.Contains(string(out), `"not_authorized"`) {
		t.Errorf("uid 12345 got %s, %v", out, err)
	}
	if s.call(t, "GET", wire.PathHello, "", nil).StatusCode != http.StatusOK {
		t.Error("our own user is not let in")
	}
}

// A server that does not say who connects serves nobody: not by mistake over TCP.
func TestNobodyWithoutPeerCredentials(t *testing.T) {
	w := httptest.NewRecorder()
	NewDoor().ServeHTTP(w, httptest.NewRequest("GET", wire.PathHello, nil))
	if w.Code != http.StatusForbidden {
		t.Errorf("without ConnContext: %d", w.Code)
	}
	tcp := httptest.NewUnstartedServer(NewDoor())
	tcp.Config.ConnContext = ConnContext
	tcp.Start()
	defer tcp.Close()
	res, err := tcp.Client().Get(tcp.URL + wire.PathHello)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("over TCP: %d", res.StatusCode)
	}
}
