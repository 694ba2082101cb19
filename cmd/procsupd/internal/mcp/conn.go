package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxFrame bounds one message of the client.
const maxFrame = 8 << 20

// A conn is the client's end of MCP over stdio: one message a line. Unlike the
// SDK's own it answers a line that is no message and goes on, and its end comes
// when every request has its answer.
type conn struct {
	in     io.ReadCloser
	out    io.Writer
	ledger *ledger
	msgs   chan jsonrpc.Message
	wmu    sync.Mutex // a line is written whole
	once   sync.Once
	over   chan struct{} // closed by Close
	read   chan struct{} // closed when nothing more is read
}

// Connect makes a conn the transport of itself; the SDK calls it once.
func (c *conn) Connect(context.Context) (sdk.Connection, error) { return c, nil }

// newConn reads from in until it ends or is closed, which Close does.
func newConn(in io.ReadCloser, out io.Writer) *conn {
	c := &conn{in: in, out: out, ledger: newLedger(), msgs: make(chan jsonrpc.Message), over: make(chan struct{}), read: make(chan struct{})}
	go c.receive() // ends with the input, or by Close
	return c
}

// SessionID is empty: there is one session, that of the connection.
func (c *conn) SessionID() string { return "" }

// Read is the next message.
func (c *conn) Read(context.Context) (jsonrpc.Message, error) {
	select {
	case m, ok := <-c.msgs:
		if ok {
			return m, nil
		}
	case <-c.over:
	}
	return nil, io.EOF
}

// Write sends a message.
func (c *conn) Write(_ context.Context, m jsonrpc.Message) error {
	line, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	written := func() {}
	if r, ok := m.(*jsonrpc.Response); ok {
		line, written = c.ledger.answered(r.ID, line)
	}
	err = c.send(line)
	written()
	return err
}

func (c *conn) send(line []byte) error {
	if line == nil {
		return nil
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if _, err := c.out.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write to the client: %w", err)
	}
	return nil
}

// Close ends the connection, with all that is under way.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.over)
		c.in.Close()
	})
	return nil
}

// receive reads lines and passes their messages on.
func (c *conn) receive() {
	defer close(c.read)
	r := bufio.NewReaderSize(c.in, 64<<10)
	for {
		line, scan, err := readLine(r)
		switch {
		case scan != nil:
			c.refuse(scan.found(), jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message of more than %d MiB", maxFrame>>20))
		case len(line) > 0:
			c.accept(line)
		}
		if err != nil {
			break
		}
	}
	select {
	case <-c.ledger.settled():
		close(c.msgs)
	case <-c.over:
	}
}

// readLine reads a line without its end. Of one that is too long it gives what
// a scan found.
func readLine(r *bufio.Reader) (line []byte, long *idScan, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if long == nil && len(line)+len(part) > maxFrame {
			long = &idScan{}
			long.Write(line)
			line = nil
		}
		if long != nil {
			long.Write(part)
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return trim(line), long, err
		}
	}
}

func trim(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }

// accept passes the message of a line on, or those of an array of them, which
// clients of 2025-03-26 may send.
func (c *conn) accept(line []byte) {
	if !json.Valid(line) { // bounds the depth too
		c.refuse(nil, jsonrpc.CodeParseError, "a line that is not JSON")
		return
	}
	if line[0] != '[' {
		c.take(line, nil)
		return
	}
	var parts []json.RawMessage
	if json.Unmarshal(line, &parts) != nil || len(parts) == 0 {
		c.refuse(nil, jsonrpc.CodeInvalidRequest, "an array without a message")
		return
	}
	b := &batch{left: 1}
	for _, p := range parts {
		c.take(p, b)
	}
	_ = c.send(c.ledger.complete(b)) // a connection that breaks is seen by who reads and who watches
}

// take passes one message on, or answers what is none.
func (c *conn) take(raw []byte, b *batch) {
	var scan idScan
	scan.Write(raw)
	m, err := jsonrpc.DecodeMessage(raw)
	req, isRequest := m.(*jsonrpc.Request)
	switch {
	case err != nil:
		c.refuseIn(b, scan.found(), "no JSON-RPC 2.0 message")
		return
	case isRequest && scan.present() && string(scan.found()) == "null":
		c.refuseIn(b, nil, "the id of a request is a string or a whole number")
		return
	case isRequest && req.IsCall() && !c.ledger.enter(req.ID, req.Method, b):
		c.refuseIn(b, nil, fmt.Sprintf("the id %s is that of a request that is not answered yet", scan.found()))
		return
	}
	select {
	case c.msgs <- m:
	case <-c.over:
	}
}

// refuse answers what is no request. A nil id is null.
func (c *conn) refuse(id json.RawMessage, code int, why string) {
	_ = c.send(refusal(id, code, why))
}

// refuseIn answers a part of a batch, or with nil a message of its own.
func (c *conn) refuseIn(b *batch, id json.RawMessage, why string) {
	line := refusal(id, jsonrpc.CodeInvalidRequest, why)
	if b == nil {
		_ = c.send(line)
		return
	}
	c.ledger.add(b, line)
}

func refusal(id json.RawMessage, code int, why string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	line, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   jsonrpc.Error   `json:"error"`
	}{"2.0", id, jsonrpc.Error{Code: int64(code), Message: why}})
	if err != nil {
		panic("marshal refusal: " + err.Error()) // plain data
	}
	return line
}
