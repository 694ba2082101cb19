//go:build linux

// Command gowrap is the smallest honest wrapper in Go: own process group,
// signals passed on, exit code kept. procsup is measured against it.
package main

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	sig := make(chan os.Signal, 8)
	signal.Notify(sig, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	path, err := exec.LookPath(os.Args[1])
	if err != nil {
		os.Exit(127)
	}
	p, err := os.StartProcess(path, os.Args[1:], &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		os.Exit(126)
	}
	go func() { // ends with the program
		for s := range sig {
			syscall.Kill(-p.Pid, s.(syscall.Signal))
		}
	}()
	st, _ := p.Wait()
	if ws := st.Sys().(syscall.WaitStatus); ws.Signaled() {
		os.Exit(128 + int(ws.Signal()))
	}
	os.Exit(st.ExitCode())
}
