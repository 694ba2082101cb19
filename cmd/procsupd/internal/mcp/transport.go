package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
)

// maxPeek bounds how much of a line is kept to find its id.
const maxPeek = 1 << 20

// A ledger counts requests that were read and not answered yet. The SDK drops
// answers that are still being made when its input ends
// (github.com/modelcontextprotocol/go-sdk issue 1061), so that `procsup mcp
// <requests` would say nothing: the end of the input is held back until every
// request has its answer, or was cancelled.
type ledger struct {
	mu   sync.Mutex
	open map[string]int
	bell chan struct{} // closed when one is answered; nil: nobody waits
}

func newLedger() *ledger { return &ledger{open: map[string]int{}} }

// A frame is what the ledger looks at in a message.
type frame struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
}

// read notes a message that came in; sent one that went out.
func (l *ledger) read(line []byte) {
	for _, f := range frames(line) {
		switch {
		case f.Method == "notifications/cancelled":
			l.close(string(f.Params.RequestID)) // it may stay without an answer
		case f.Method != "" && known(f.ID):
			l.mu.Lock()
			l.open[string(f.ID)]++
			l.mu.Unlock()
		}
	}
}

func (l *ledger) sent(line []byte) {
	for _, f := range frames(line) {
		if f.Method == "" && known(f.ID) {
			l.close(string(f.ID))
		}
	}
}

func known(id json.RawMessage) bool { return len(id) > 0 && string(id) != "null" }

// frames are the messages of a line: one, or a batch of them.
func frames(line []byte) []frame {
	line = bytes.TrimSpace(line)
	if len(line) > 0 && line[0] == '[' {
		var fs []frame
		_ = json.Unmarshal(line, &fs) // the SDK says what is wrong with it
		return fs
	}
	var f frame
	if json.Unmarshal(line, &f) != nil {
		return nil
	}
	return []frame{f}
}

func (l *ledger) close(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[id]--; l.open[id] <= 0 {
		delete(l.open, id)
	}
	if l.bell != nil {
		close(l.bell)
		l.bell = nil
	}
}

// settled waits until nothing is open.
func (l *ledger) settled(ctx context.Context) {
	for {
		l.mu.Lock()
		if len(l.open) == 0 {
			l.mu.Unlock()
			return
		}
		if l.bell == nil {
			l.bell = make(chan struct{})
		}
		bell := l.bell
		l.mu.Unlock()
		select {
		case <-bell:
		case <-ctx.Done():
			return
		}
	}
}

// A tap passes bytes on and shows whole lines to look.
type tap struct {
	line []byte
	over bool // the line is too long to be looked at
	look func([]byte)
}

func (t *tap) pass(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		part := b
		if i >= 0 {
			part = b[:i]
		}
		if t.over = t.over || len(t.line)+len(part) > maxPeek; !t.over {
			t.line = append(t.line, part...)
		}
		if i < 0 {
			return
		}
		if !t.over {
			t.look(t.line)
		}
		t.line, t.over, b = t.line[:0], false, b[i+1:]
	}
}

// input is the client's messages. Its end comes when all are answered.
type input struct {
	ctx  context.Context
	r    io.ReadCloser
	tap  tap
	l    *ledger
	done error
}

func (in *input) Read(b []byte) (int, error) {
	if in.done != nil {
		return 0, in.done
	}
	n, err := in.r.Read(b)
	in.tap.pass(b[:n])
	if errors.Is(err, io.EOF) {
		in.done = err
		if len(in.tap.line) > 0 && !in.tap.over { // a last line without its end
			in.tap.look(in.tap.line)
			in.tap.line = nil
			if n < len(b) {
				b[n] = '\n'
				return n + 1, nil
			}
		}
		if n > 0 {
			in.done = nil
			return n, nil
		}
		in.l.settled(in.ctx)
	}
	return n, err
}

func (in *input) Close() error { return in.r.Close() }

// output is our messages.
type output struct {
	w   io.WriteCloser
	tap tap
	mu  sync.Mutex
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.w.Write(b)
	o.tap.pass(b[:n])
	return n, err
}

func (o *output) Close() error { return o.w.Close() }
