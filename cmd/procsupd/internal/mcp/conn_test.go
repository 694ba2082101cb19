package mcp

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`
	held = `{"jsonrpc":"2.0","id":"held","method":"tools/call","params":{"name":"run_command","arguments":{"command":"echo $$ >pid; exec sleep 600"}}}
`
)

// serve plays a server that answers every request at once, over a conn that
// reads in, and gives what was written.
func serve(t testing.TB, in string) (requests []*jsonrpc.Request, out []byte) {
	t.Helper()
	var b bytes.Buffer
	c := newConn(io.NopCloser(strings.NewReader(in)), &b)
	for {
		m, err := c.Read(t.Context())
		if err != nil {
			break
		}
		req, ok := m.(*jsonrpc.Request)
		if !ok || !req.IsCall() {
			continue
		}
		requests = append(requests, req)
		if req.Method == listening {
			continue
		}
		if err := c.Write(t.Context(), &jsonrpc.Response{ID: req.ID, Result: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	<-c.read
	return requests, b.Bytes()
}

func TestBatches(t *testing.T) {
	for name, c := range map[string]struct{ in, out string }{
		"one": {`{"jsonrpc":"2.0","id":1,"method":"a"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		"two in an array": {`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"a"}]`,
			`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]`},
		"notifications only": {`[{"jsonrpc":"2.0","method":"a"}]`, ``},
		"with one that is none": {`[1,{"jsonrpc":"2.0","id":"x","method":"a"}]`,
			`[{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no JSON-RPC 2.0 message"}},{"jsonrpc":"2.0","id":"x","result":{}}]`},
		"listening holds back nothing": {`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			if _, out := serve(t, c.in+"\n"); string(trim(out)) != c.out {
				t.Errorf("wrote %s, want %s", out, c.out)
			}
		})
	}
}

// TestEndWaits: the end of the input comes once every request has its answer,
// in whatever order they are given.
func TestEndWaits(t *testing.T) {
	var b bytes.Buffer
	c := newConn(io.NopCloser(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"a"}
{"jsonrpc":"2.0","id":2,"method":"a"}`)), &b)
	var ids []jsonrpc.ID
	for range 2 {
		m, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.(*jsonrpc.Request).ID)
	}
	var end sync.WaitGroup
	var err error
	end.Go(func() { _, err = c.Read(t.Context()) })
	for _, id := range []jsonrpc.ID{ids[1], ids[0]} {
		select {
		case <-c.ledger.settled():
			t.Error("settled with a request open")
		default:
		}
		if err := c.Write(t.Context(), &jsonrpc.Response{ID: id, Result: json.RawMessage(`1`)}); err != nil {
			t.Fatal(err)
		}
	}
	end.Wait()
	if err != io.EOF || strings.Count(b.String(), "\n") != 2 {
		t.Errorf("%v after %s", err, b.String())
	}
}

func scanned(b []byte) string {
	var s idScan
	s.Write(b)
	return string(s.found())
}

func TestIDScan(t *testing.T) {
	for in, want := range map[string]string{
		`{"id":1}`:       "1",
		`{"id" : "a" }`:  `"a"`,
		`{"a":{"id":1}}`: "null",
		`{"a":[{"id":1}],"params":{"x":"\"id\":7"},"jsonrpc":"2.0","id":-3}`: "-3",
		`{"\u0069d":5}`:           "5",
		`{"id":1e3}`:              "null",
		`{"id":9007199254740993}`: "null",
		`["id",1]`:                "null",
		`{"x":"id","id":2,"y":3}`: "2",
		`{"id":`:                  "null",
		`{"id":"` + strings.Repeat("x", 300) + `"}`: "null",
	} {
		if got := scanned([]byte(in)); got != want {
			t.Errorf("%.60s: %s, want %s", in, got, want)
		}
	}
}

// FuzzFrames: whatever comes, each request is passed on once with the id that it
// was written with, every other line but notifications and answers is answered
// with an error, and what is written is one value a line.
func FuzzFrames(f *testing.F) {
	for _, in := range []string{
		hello, held, "garbage\n", "[]\n[1]\n{}\n", `{"jsonrpc":"2.0","id":1,"method":"a","ID":2}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}`, `[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":1,"method":"a"}]`,
		`{"jsonrpc":"2.0","id":1.0,"method":"a"}`, `{"jsonrpc":"2.0","id":"\ud800","method":"a"}`, "\xff\n\r\n \n",
		`{"jsonrpc":"2.0","id":3,"result":{}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`,
	} {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		requests, out := serve(t, in)
		answered := 0
		for _, line := range bytes.Split(trim(out), []byte("\n")) {
			if len(line) == 0 {
				continue
			}
			var some []struct {
				ID     any             `json:"id"`
				Result json.RawMessage `json:"result"`
			}
			if line[0] != '[' {
				line = append(append([]byte("["), line...), ']')
			}
			if err := json.Unmarshal(line, &some); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			for _, l := range some {
				if l.Result != nil {
					answered++
				}
			}
		}
		listen := 0
		for _, r := range requests {
			if r.Method == listening {
				listen++
			}
			switch r.ID.Raw().(type) {
			case string, int64:
			default:
				t.Errorf("a request with the id %#v", r.ID.Raw())
			}
		}
		if answered != len(requests)-listen {
			t.Errorf("%d requests, %d answers: %s", len(requests), answered, out)
		}
	})
}

// FuzzIDScan: the scan finds what a decoder finds.
func FuzzIDScan(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	f.Add(`{"a":"\\\"","id":"x"}`)
	f.Fuzz(func(t *testing.T, in string) {
		got := scanned([]byte(in))
		m, err := jsonrpc.DecodeMessage([]byte(in))
		req, ok := m.(*jsonrpc.Request)
		if err != nil || !ok || !json.Valid([]byte(in)) || got == "null" {
			return
		}
		want, err := json.Marshal(req.ID.Raw())
		if err != nil || string(want) != got {
			t.Errorf("%s: scanned %s, decoded %s", in, got, want)
		}
	})
}
