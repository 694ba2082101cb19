package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"procsup/capture"
)

// play is one of the parts that copies of this program take.
func play(part string, args []string) int {
	parts := map[string]func([]string) error{
		"writer": writer, "pump": pump, "library": library, "tree": tree, "member": member,
		"bare": bareDaemon, "ready": ready, "beready": beReady, "seq": sequence, "ticks": ticks,
	}
	if err := parts[part](args); err != nil {
		fmt.Fprintln(os.Stderr, "bench", part+":", err)
		return 1
	}
	return 0
}

// writer writes BYTES of KIND and notes in $WRITER_NOTE when it began, in ns,
// and its own CPU time in ns: neither is the sink's.
func writer(args []string) error {
	began := time.Now().UnixNano()
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	line := []byte(strings.Repeat("x", 79) + "\n")
	switch args[0] {
	case "lines": // as stdio does into a pipe
		w := bufio.NewWriterSize(os.Stdout, 4096)
		for done := int64(0); done < n && err == nil; done += int64(len(line)) {
			_, err = w.Write(line)
		}
		if err == nil {
			err = w.Flush()
		}
	case "unbuffered":
		for done := int64(0); done < n && err == nil; done += int64(len(line)) {
			_, err = os.Stdout.Write(line)
		}
	default:
		block := make([]byte, 64<<10)
		for done := int64(0); done < n && err == nil; done += int64(len(block)) {
			_, err = os.Stdout.Write(block)
		}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(os.Getenv("WRITER_NOTE"), fmt.Append(nil, began, " ", cpuOf(unix.RUSAGE_SELF).Nanoseconds()), 0o644)
}

// pump copies stdin to FILE with 64 KiB reads: what a plain Go program does.
func pump(args []string) error {
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(0, buf)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return f.Close()
		}
		if _, err := f.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// library captures a writer with the package capture in a process that also
// holds IDLE captures of commands that write nothing:
// library DIR IDLE MATCH|- WRITER-ARGS… .
func library(args []string) error {
	idle, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	grown := capture.NewGrow(8)
	for i := range idle {
		log, err := capture.Open(capture.Config{Dir: filepath.Join(args[0], "idle"+strconv.Itoa(i)), Grown: grown})
		if err != nil {
			return err
		}
		for _, src := range []capture.Source{capture.Stdout, capture.Stderr} {
			w, err := log.Pipe(src)
			if err != nil {
				return err
			}
			defer w.Close()
		}
		defer log.Close()
	}
	log, err := capture.Open(capture.Config{Dir: filepath.Join(args[0], "busy"), MaxOutput: -1, Grown: grown})
	if err != nil {
		return err
	}
	defer log.Close()
	w, err := log.Pipe(capture.Stdout)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", append([]string{child, "writer"}, args[3:]...)...)
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	w.Close()
	matched := make(chan struct{})
	go func() { // ends with the stream
		defer close(matched)
		if args[2] != "-" {
			log.Match(context.Background(), capture.Query{Pattern: args[2]})
		}
	}()
	if err := cmd.Wait(); err != nil {
		return err
	}
	log.Drain(context.Background(), 50*time.Millisecond, time.Minute)
	<-matched
	return nil
}

// tree is a leader with two children in its group; MODE obey, ignore (all
// ignore TERM), mixed (the children do), escape (one more, in a session of its
// own). Pids go to DIR, last of all the file up.
func tree(args []string) error {
	mode, dir := args[0], args[1]
	if mode == "ignore" {
		signal.Ignore(syscall.SIGTERM)
	}
	names := []string{"child1", "child2"}
	if mode == "escape" {
		names = append(names, "escapee")
	}
	for _, name := range names {
		cmd := exec.Command("/proc/self/exe", child, "member", mode, filepath.Join(dir, name))
		if name == "escapee" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		}
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	for _, name := range names {
		for {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return member([]string{"leader-" + mode, filepath.Join(dir, "leader")})
}

func member(args []string) error {
	if args[0] == "mixed" || args[0] == "ignore" {
		signal.Ignore(syscall.SIGTERM)
	}
	tmp := args[1] + "~"
	if err := os.WriteFile(tmp, fmt.Append(nil, os.Getpid()), 0o644); err != nil {
		return err
	}
	if err := os.Rename(tmp, args[1]); err != nil {
		return err
	}
	time.Sleep(time.Minute)
	return nil
}
