package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"time"

	"procsup/supervisor/wire"
)

const (
	writers   = 20
	writeCode = 7
)

// sequence writes a numbered line of 64 bytes each millisecond until FILE
// exists: seq N FILE.
func sequence(args []string) error {
	for i := 0; ; i++ {
		fmt.Printf("%-63s\n", "SEQ "+args[0]+" "+strconv.Itoa(i))
		if _, err := os.Stat(args[1]); err == nil {
			os.Exit(writeCode)
		}
		time.Sleep(time.Millisecond)
	}
}

// crash is item 7 of performance.md: the supervisor is killed again and again
// while 20 commands write. That nothing is lost under every kind of load is what
// test/chaos shows; here it is the time.
func crash(l *lab) error {
	d, err := l.daemon("")
	if err != nil {
		return err
	}
	defer d.stop()
	ctx := context.Background()
	end := d.dir + "/end"
	var all []*wire.Started
	for i := range writers {
		a, err := d.Start(ctx, small(l.self, child, "seq", strconv.Itoa(i), end))
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	var back []time.Duration
	for range *kills {
		t, err := killOnce(d)
		if err != nil {
			return err
		}
		back = append(back, t)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		return err
	}
	lines, bad := 0, 0
	for i, a := range all {
		w, err := d.Wait(ctx, string(a.HandleID), 0)
		if err != nil {
			return err
		}
		n, ok := inSequence(a.StdoutPath, i)
		lines += n
		if !ok || w.Record.ExitCode == nil || *w.Record.ExitCode != writeCode {
			bad++
		}
	}
	table(fmt.Sprintf("7. SIGKILL of the supervisor, %d times, with %d writing commands", len(back), writers),
		[]string{"service back, p50 ms", "p99 ms", "most ms", "target ms", "lines written", "commands with a lost line, byte or exit code", "target"},
		[][]string{{ms(median(back)), ms(quantile(back, .99)), ms(quantile(back, 1)), "150", strconv.Itoa(lines), strconv.Itoa(bad), "0"}})
	return nil
}

// killOnce kills the supervisor at some moment and returns how long it took
// until the next one answered.
func killOnce(d *daemon) (time.Duration, error) {
	h, err := d.Hello(context.Background())
	if err != nil {
		return 0, err
	}
	time.Sleep(100*time.Millisecond + rand.N(200*time.Millisecond))
	if err := syscall.Kill(h.PID, syscall.SIGKILL); err != nil { // not our child: the keeper reaps it only when it has seen it
		return 0, err
	}
	killed := time.Now()
	for {
		next, err := d.Hello(context.Background())
		if err != nil {
			return 0, err
		}
		if next.Generation > h.Generation {
			return time.Since(killed), nil
		}
	}
}

// inSequence reports whether a file has every line of a writer once, in order.
func inSequence(path string, writer int) (lines int, ok bool) {
	b, err := os.ReadFile(path)
	for ; err == nil && len(b) >= 64; lines++ {
		if string(b[:64]) != fmt.Sprintf("%-63s\n", "SEQ "+strconv.Itoa(writer)+" "+strconv.Itoa(lines)) {
			return lines, false
		}
		b = b[64:]
	}
	return lines, err == nil && len(b) == 0
}
