package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"procsup/supervisor/wire"
)

// readyAfter is how long a child of wake waits before it is ready: long enough
// for whoever waits to be waiting.
const readyAfter = 60 * time.Millisecond

// monotonic is the clock that all processes share.
func monotonic() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// ready says when it is ready, by the clock at that moment, and stays.
func ready([]string) error {
	time.Sleep(readyAfter)
	fmt.Printf("ready %d\n", monotonic())
	time.Sleep(time.Minute)
	return nil
}

// wake is item 4 of performance.md: from a child's line to the return of whoever
// waits for it.
func wake(l *lab) error {
	d, err := l.daemon("")
	if err != nil {
		return err
	}
	defer d.stop()
	rows := []struct {
		name, p50, p99 string
		wait           func() (time.Duration, error)
		took           []time.Duration
	}{
		{name: "bare: Go pipe and channel", wait: l.pipeWake},
		{name: "procsup, kept connection", p50: "0.40", p99: "1.50", wait: func() (time.Duration, error) { return l.keptWake(d) }},
		{name: "procsup wait-output, a process", p50: "2.00", wait: func() (time.Duration, error) { return l.verbWake(d) }},
	}
	for i := range *rounds + 3 {
		for k := range rows {
			t, err := rows[k].wait()
			if err != nil {
				return fmt.Errorf("%s: %w", rows[k].name, err)
			}
			if i >= 3 {
				rows[k].took = append(rows[k].took, t)
			}
		}
	}
	var out [][]string
	for _, r := range rows {
		out = append(out, []string{r.name, ms(median(r.took)), r.p50, ms(quantile(r.took, .99)), r.p99})
	}
	table(fmt.Sprintf("4. From the ready line to the waiter's return (%d interleaved rounds)", *rounds), []string{"", "p50 ms", "target", "p99 ms", "target"}, out)
	return l.idleWait(d)
}

// since is how long ago a child said that it was ready.
func since(line string, now int64) (time.Duration, error) {
	_, stamp, _ := strings.Cut(strings.TrimSpace(line), " ")
	n, err := strconv.ParseInt(stamp, 10, 64)
	return time.Duration(now - n), err
}

func (l *lab) pipeWake() (time.Duration, error) {
	cmd := exec.Command(l.self, child, "ready")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lines := make(chan string)
	go func() { // ends with the first line
		line, _ := bufio.NewReader(out).ReadString('\n')
		lines <- line
	}()
	line := <-lines
	now := monotonic()
	cmd.Process.Kill()
	cmd.Wait()
	return since(line, now)
}

func (l *lab) keptWake(d *daemon) (time.Duration, error) {
	return l.wakeBy(d, func(id string) error {
		w, err := d.WaitOutput(context.Background(), id, wire.WaitOutput{Pattern: "ready"})
		if err == nil && w.Status != wire.Matched {
			err = errors.New(w.Status)
		}
		return err
	})
}

func (l *lab) verbWake(d *daemon) (time.Duration, error) {
	return l.wakeBy(d, func(id string) error {
		out, err := exec.Command(l.procsup, "wait-output", "--socket", d.socket(), "--state", d.state(), id, "ready").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
}

// wakeBy starts a child, waits for it to be ready, and ends it.
func (l *lab) wakeBy(d *daemon, wait func(id string) error) (time.Duration, error) {
	req, now := small(l.self, child, "ready"), int64(-1)
	req.GraceMS = &now
	*req.GraceMS = 0
	a, err := d.Start(context.Background(), req)
	if err != nil {
		return 0, err
	}
	err = wait(string(a.HandleID))
	at := monotonic()
	if err != nil {
		return 0, err
	}
	line, err := os.ReadFile(a.StdoutPath)
	if err != nil {
		return 0, err
	}
	took, err := since(string(line), at)
	if err != nil {
		return 0, err
	}
	_, err = d.Cancel(context.Background(), string(a.HandleID), wire.Cancel{})
	return took, err
}

// idleWait counts what daemon and waiter do while a process waits for output
// that does not come.
func (l *lab) idleWait(d *daemon) error {
	a, err := d.Start(context.Background(), small("sleep", "1000"))
	if err != nil {
		return err
	}
	waiter := exec.Command(l.procsup, "wait-output", "--socket", d.socket(), "--state", d.state(), string(a.HandleID), "never")
	if err := waiter.Start(); err != nil {
		return err
	}
	supervisor, keeper, err := d.pids()
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // runtimes come to rest
	pids := map[string]int{"supervisor": supervisor, "keeper": keeper, "procsup wait-output": waiter.Process.Pid}
	names := []string{"supervisor", "keeper", "procsup wait-output"}
	var rows [][]string
	const long = 5 * time.Second
	before, cpu := map[string]int{}, map[string]time.Duration{}
	for _, name := range names {
		before[name], cpu[name] = switches(pids[name]), processCPU(pids[name])
	}
	time.Sleep(long)
	for _, name := range names {
		ran := switches(pids[name]) - before[name]
		rows = append(rows, []string{name, fmt.Sprint(ran), us(processCPU(pids[name]) - cpu[name]), "0"})
	}
	for i, name := range names {
		rows[i] = append(rows[i], traced(pids[name], long), "0")
	}
	table(fmt.Sprintf("4. While somebody waits for output that does not come, %v", long), []string{"", "switches", "CPU µs", "target", "system calls", "target"}, rows)
	waiter.Process.Kill()
	waiter.Wait()
	return nil
}

// traced counts the system calls of a process, where strace is installed. What
// strace interrupts to attach is restarted, and is no call of the process.
func traced(pid int, long time.Duration) string {
	if !installed("strace") {
		return "no strace"
	}
	var log bytes.Buffer
	cmd := exec.Command("strace", "-f", "-qq", "-p", strconv.Itoa(pid))
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return "no strace"
	}
	time.Sleep(long)
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil && log.Len() == 0 {
		return "may not trace"
	}
	n := 0
	for line := range strings.Lines(log.String()) {
		// with a result, and not one that began before and was still going on at the end
		if strings.Contains(line, " = ") && !strings.Contains(line, "restart_syscall") {
			n++
		}
	}
	return strconv.Itoa(n)
}
