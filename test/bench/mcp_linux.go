package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// agent is an MCP client by hand: its own time is little.
type agent struct {
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

// call makes a request and gives the structured answer.
func (a *agent) call(method string, params any, out any) error {
	a.id++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": a.id, "method": method, "params": params})
	if err != nil {
		return err
	}
	if _, err := a.in.Write(append(b, '\n')); err != nil {
		return err
	}
	line, err := a.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	var answer struct {
		Error  json.RawMessage `json:"error"`
		Result struct {
			Structured json.RawMessage `json:"structuredContent"`
			IsError    bool            `json:"isError"`
		} `json:"result"`
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return err
	}
	if answer.Error != nil || answer.Result.IsError {
		return fmt.Errorf("%s: %s", method, line)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer.Result.Structured, out)
}

func (a *agent) tool(name string, args any, out any) error {
	return a.call("tools/call", map[string]any{"name": name, "arguments": args}, out)
}

// mcpItem compares `procsup mcp` with the socket: a call that runs true, and
// the time from a line to the answer of a wait for it.
func mcpItem(l *lab) error {
	daemon := filepath.Join(l.dir, "procsupd")
	if *binary != "" {
		daemon = filepath.Join(filepath.Dir(l.procsup), "procsupd")
	} else {
		cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", daemon, "procsup/cmd/procsupd")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build procsupd: %w\n%s", err, out)
		}
	}
	socket, state := filepath.Join(l.dir, "s"), filepath.Join(l.dir, "state")
	cmd := exec.Command(l.procsup, "mcp", "--socket", socket, "--state", state)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	a := &agent{in: in, out: bufio.NewReader(out)}
	c := client.New(client.Config{Socket: socket, State: state})
	defer c.Close()
	err = measureMCP(a, c, l)
	in.Close()
	_ = cmd.Wait()
	_ = c.Shutdown(context.Background())
	return err
}

func measureMCP(a *agent, c *client.Client, l *lab) error {
	err := a.call("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "bench", "version": "1"}}, nil)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(a.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		return err
	}
	if err := a.tool("run_command", map[string]any{"argv": []string{"true"}}, nil); err != nil { // starts the daemon
		return err
	}
	if _, err := c.OpenSession(context.Background(), wire.OpenSession{Name: "bench"}); err != nil {
		return err
	}
	var tool, socket, line []time.Duration
	for i := range *rounds + 3 {
		t, s, err := onceEach(a, c)
		if err != nil {
			return err
		}
		if i >= 3 { // the first rounds fill caches
			tool, socket = append(tool, t), append(socket, s)
		}
	}
	if line, err = lines(a, l); err != nil {
		return err
	}
	table(fmt.Sprintf("MCP (%d interleaved rounds, medians)", *rounds), []string{"", "µs", "× socket"}, [][]string{
		{"run true and get its output, socket", us(median(socket)), "1.00"},
		{"the same as a tool call", us(median(tool)), ratio(median(tool), median(socket))},
		{"wait_for_output, after the line", us(median(line)), "-"},
	})
	return nil
}

// onceEach runs true through both doors.
func onceEach(a *agent, c *client.Client) (tool, socket time.Duration, err error) {
	ctx, moment := context.Background(), int64(5000)
	start := time.Now()
	if err := a.tool("run_command", map[string]any{"argv": []string{"true"}}, nil); err != nil {
		return 0, 0, err
	}
	tool = time.Since(start)
	start = time.Now()
	s, err := c.Start(ctx, wire.Start{Command: []string{"true"}, Env: os.Environ(), Session: "bench", Lease: "awaited", BackgroundMS: &moment, NoStoreEnv: true})
	if err == nil && s.Batch == "" {
		err = fmt.Errorf("%s was not delivered", s.HandleID)
	}
	if err == nil {
		_, err = c.Acknowledge(ctx, "bench", wire.Acknowledge{Batch: s.Batch})
	}
	return tool, time.Since(start), err
}

// lines measures from the moment before a line is written to the answer of a
// wait for it that is under way.
func lines(a *agent, l *lab) (took []time.Duration, err error) {
	var v struct {
		Handle string `json:"handle"`
	}
	start := map[string]any{"argv": []string{l.self, child, "ticks", strconv.Itoa(*rounds)}, "background_after_s": 0}
	if err := a.tool("run_command", start, &v); err != nil {
		return nil, err
	}
	for i := range *rounds {
		var w struct {
			Text string `json:"text"`
		}
		if err := a.tool("wait_for_output", map[string]any{"handle": v.Handle, "pattern": fmt.Sprintf(`tick %d \d+\n`, i), "regex": true}, &w); err != nil {
			return nil, err
		}
		now := time.Now().UnixNano()
		f := strings.Fields(w.Text)
		at, err := strconv.ParseInt(f[len(f)-1], 10, 64)
		if err != nil {
			return nil, err
		}
		took = append(took, time.Duration(now-at))
	}
	return took, nil
}

// ticks writes N lines with the time in them, 20 ms apart.
func ticks(args []string) error {
	n, err := strconv.Atoi(args[0])
	for i := 0; i < n && err == nil; i++ {
		time.Sleep(20 * time.Millisecond)
		_, err = fmt.Printf("tick %d %d\n", i, time.Now().UnixNano())
	}
	return err
}
