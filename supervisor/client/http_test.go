package client

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// parse reads one answer as a call does.
func parse(r io.Reader) (*response, string, error) {
	p, err := readResponse(bufio.NewReader(r))
	if err != nil {
		return nil, "", err
	}
	b, err := io.ReadAll(p.body)
	return p, string(b), err
}

func TestResponses(t *testing.T) {
	long := strings.Repeat("a", 10_000)
	for name, c := range map[string]struct{ in, body string }{
		"a length":       {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "hi"},
		"no reason":      {"HTTP/1.1 200 \r\ncontent-length:\t 2 \r\n\r\nhi", "hi"},
		"chunks":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\nh\r\n1\r\ni\r\n0\r\n\r\n", "hi"},
		"trailers":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nProcsup-Next: 7\r\n\r\n", "hi"},
		"nothing":        {"HTTP/1.1 204 No Content\r\n\r\n", ""},
		"informational":  {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""},
		"a long header":  {"HTTP/1.1 200 OK\r\nX: " + long + "\r\nContent-Length: 1\r\n\r\nx", "x"},
		"bytes of a run": {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x00\xff\r\n", "\x00\xff\r\n"},
	} {
		for how, r := range map[string]io.Reader{"at once": strings.NewReader(c.in), "byte by byte": iotest.OneByteReader(strings.NewReader(c.in))} {
			if p, body, err := parse(r); err != nil || body != c.body || name == "trailers" && p.trailer["procsup-next"] != "7" {
				t.Errorf("%s, %s: %q, %v, %+v", name, how, body, err, p)
			}
		}
	}
}

func TestMalformedResponses(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\n"
	chunked := head + "Transfer-Encoding: chunked\r\n\r\n"
	for name, in := range map[string]string{
		"an old version":       "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
		"not HTTP":             "SSH-2.0-OpenSSH_9.2\r\n",
		"a bad status":         "HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n",
		"a short status":       "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
		"bare LF":              "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
		"no length":            head + "\r\n",
		"two lengths":          head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"length and chunks":    head + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a negative length":    head + "Content-Length: -1\r\n\r\n",
		"a signed length":      head + "Content-Length: +1\r\n\r\na",
		"a huge length":        head + "Content-Length: 99999999999999999999\r\n\r\n",
		"another coding":       head + "Transfer-Encoding: gzip\r\n\r\n",
		"a switch":             "HTTP/1.1 101 Switching\r\n\r\n",
		"a folded header":      head + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
		"a space in a name":    head + "Content-Length : 0\r\n\r\n",
		"a NUL":                head + "X: \x00\r\nContent-Length: 0\r\n\r\n",
		"an endless line":      head + "X: " + strings.Repeat("a", maxLine+1),
		"endless headers":      head + strings.Repeat("X: a\r\n", maxHeaders+1) + "\r\n",
		"a bad chunk size":     chunked + "-1\r\n",
		"an empty chunk size":  chunked + "\r\n",
		"a prefixed size":      chunked + "0x1\r\na\r\n0\r\n\r\n",
		"a huge chunk":         chunked + "ffffffffffffffffff\r\n",
		"more than its chunk":  chunked + "1\r\nab\r\n0\r\n\r\n",
		"trailers of nonsense": chunked + "0\r\n???\r\n\r\n",
	} {
		if _, body, err := parse(strings.NewReader(in)); !errors.Is(err, errMalformed) {
			t.Errorf("%s: got %q and %v, want %v", name, body, err, errMalformed)
		}
	}
}

// An answer that ends early is never taken for a whole one, wherever it ends.
func TestTruncatedResponses(t *testing.T) {
	for _, whole := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
	} {
		for n := range len(whole) {
			_, body, err := parse(strings.NewReader(whole[:n]))
			if n == 0 && err != io.EOF || n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q: got %q and %v", whole[:n], body, err)
			}
		}
	}
}

// FuzzResponse: nothing that can come from a socket makes us panic or loop, and
// what we take for an answer net/http takes for the same one.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n{\"error\":\"not_found\"}",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		p, body, err := parse(strings.NewReader(string(in)))
		if err != nil {
			return
		}
		r := bufio.NewReader(strings.NewReader(string(in)))
		for {
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("we read %d %q, net/http %v", p.status, body, err)
			}
			if res.StatusCode == 100 || res.StatusCode == 102 || res.StatusCode == 103 {
				continue
			}
			b, err := io.ReadAll(res.Body)
			if err != nil || string(b) != body || res.StatusCode != p.status {
				t.Fatalf("we read %d %q, net/http %d %q, %v", p.status, body, res.StatusCode, b, err)
			}
			return
		}
	})
}

// escape and net/http understand each other.
func TestTargetsAreEscaped(t *testing.T) {
	c := New(Config{Session: "a b&c=%d"})
	got, err := c.path("/v1/handles/{h}/wait", "x/../y?z#é+ %2F")
	if err != nil {
		t.Fatal(err)
	}
	raw := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", got.with("timeout_ms", -1))
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if req.URL.Path != "/v1/handles/x/../y?z#é+ %2F/wait" || req.URL.Query().Get("session") != "a b&c=%d" || req.URL.Query().Get("timeout_ms") != "-1" {
		t.Errorf("%s became path %q, query %v", raw, req.URL.Path, req.URL.Query())
	}
	for _, ref := range []string{"", ".", "..", "\xff"} {
		if _, err := c.path("/v1/handles/{h}", ref); err == nil {
			t.Errorf("%q is taken for a handle", ref)
		}
	}
}
