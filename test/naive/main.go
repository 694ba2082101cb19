//go:build unix

// Command naive is the wrapper everybody writes first: its own process group,
// signals passed on, a timer, a pump. It takes procsup's flags. The end-to-end
// scripts are proven against it: a script that it passes guards nothing.
//
//	PROCSUP_UNDER_TEST=naive-binary go test ./test/e2e
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

type options struct {
	value   map[string]string
	set     map[string]bool
	env     []string
	command []string
}

var boolean = map[string]bool{"--forward": true, "--exit-code": true, "--pty": true, "--merge": true, "--json": true, "--quiet": true}

func parse(args []string) options {
	o := options{value: map[string]string{}, set: map[string]bool{}}
	for i := 0; i < len(args); i++ {
		name, value := args[i], ""
		if name == "--" {
			o.command = args[i+1:]
			break
		}
		if k := bytes.IndexByte([]byte(name), '='); k > 0 {
			name, value = name[:k], name[k+1:]
		} else if !boolean[name] && i+1 < len(args) {
			i++
			value = args[i]
		}
		o.set[name], o.value[name] = true, value
		if name == "--env" {
			o.env = append(o.env, value)
		}
	}
	return o
}

func main() {
	if len(os.Args) < 2 || os.Args[1] != "run" {
		fmt.Fprintln(os.Stderr, "naive: only run")
		os.Exit(64)
	}
	os.Exit(run(parse(os.Args[2:])))
}

func run(o options) int {
	cmd := exec.Command(o.command[0], o.command[1:]...)
	cmd.Dir = o.value["--dir"]
	cmd.Env = append(os.Environ(), o.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out, errs bytes.Buffer
	output := map[string]any{"complete": true}
	if o.set["--json"] {
		cmd.Stdout, cmd.Stderr = &out, &errs
	} else if dir := o.value["--capture"]; dir != "" {
		os.MkdirAll(dir, 0o755)
		f, _ := os.Create(filepath.Join(dir, "stdout"))
		g, _ := os.Create(filepath.Join(dir, "stderr"))
		cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, f), io.MultiWriter(os.Stderr, g)
		output["stdout"], output["stderr"] = map[string]any{"path": f.Name()}, map[string]any{"path": g.Name()}
	}
	started := time.Now()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "procsup:", err)
		return 127
	}
	ws, timedOut := wait(cmd, o)
	record := map[string]any{
		"command": o.command, "exit_code": ws.ExitStatus(), "status": "completed", "duration_ms": time.Since(started).Milliseconds(),
		"started_at": started, "stdout": map[string]any{"text": out.String(), "encoding": "utf-8", "total": out.Len()},
		"stderr": map[string]any{"text": errs.String(), "encoding": "utf-8"}, "pid": cmd.Process.Pid, "output": output,
	}
	if ws != 0 {
		record["status"] = "failed"
	}
	if ws.Signaled() {
		record["signal"], record["exit_code"] = ws.Signal().String(), nil
	}
	if timedOut {
		fmt.Fprintln(os.Stderr, "procsup: deadline")
		record["status"], record["cause"] = "killed", "deadline"
	}
	text, _ := json.Marshal(record)
	if o.set["--json"] {
		fmt.Println(string(text))
	}
	if file := o.value["--result"]; file != "" {
		os.WriteFile(file, text, 0o644)
	}
	switch {
	case timedOut:
		return 124
	case ws.Signaled():
		signal.Reset(ws.Signal())
		syscall.Kill(os.Getpid(), ws.Signal())
		time.Sleep(time.Second) // the signal comes when it comes
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// wait passes signals on to the group and ends it when the deadline is over.
func wait(cmd *exec.Cmd, o options) (ws syscall.WaitStatus, timedOut bool) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	var deadline <-chan time.Time
	if d, err := time.ParseDuration(o.value["--deadline"]); err == nil {
		deadline = time.After(d)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case <-done:
			return cmd.ProcessState.Sys().(syscall.WaitStatus), timedOut
		case s := <-signals:
			syscall.Kill(-cmd.Process.Pid, s.(syscall.Signal))
		case <-deadline:
			timedOut = true
			syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		}
	}
}
