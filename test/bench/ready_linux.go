package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// readyItem is item 4 of performance.md for readiness: from the moment at which
// something is ready to the return of who waits for it.
func readyItem(l *lab) error {
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", l.dir, "procsup/cmd/procsupd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build procsupd: %w\n%s", err, out)
	}
	l.env = append(os.Environ(), "PROCSUP_SOCKET="+filepath.Join(l.dir, "sock"), "PROCSUP_STATE="+filepath.Join(l.dir, "state"), "PROCSUP_SESSION=")
	defer func() { _ = l.command("daemon", "--stop").Run() }()
	rows := []struct {
		name    string
		measure func(delay time.Duration, n int) (time.Duration, error)
		took    []time.Duration
	}{
		{name: "procsup await tcp:", measure: l.awaitTCP},
		{name: "procsup await unix:", measure: l.awaitUnix},
		{name: "procsup await file:", measure: l.awaitFile},
		{name: "procsup wait-ready, notify", measure: func(d time.Duration, n int) (time.Duration, error) { return l.waitReady("notify", "notify", d, n) }},
		{name: "procsup wait-ready, fd:3", measure: func(d time.Duration, n int) (time.Duration, error) { return l.waitReady("fd", "fd:3", d, n) }},
		{name: "procsup wait-ready, output:", measure: func(d time.Duration, n int) (time.Duration, error) {
			return l.waitReady("output", "output:ready", d, n)
		}},
		{name: "s6 notification-fd, s6-svwait -U", measure: l.waitS6},
	}
	for n := range max(*rounds/2, 5) {
		for i := range rows {
			if strings.HasPrefix(rows[i].name, "s6") && !(installed("s6-supervise") && installed("s6-svwait")) {
				continue
			}
			delay := 30*time.Millisecond + rand.N(70*time.Millisecond) // within the first 100 ms
			d, err := rows[i].measure(delay, n)
			if err != nil {
				return fmt.Errorf("%s: %w", rows[i].name, err)
			}
			rows[i].took = append(rows[i].took, d)
		}
	}
	var out [][]string
	for _, r := range rows {
		row := []string{r.name, "not installed", ""}
		if len(r.took) > 0 {
			slices.Sort(r.took)
			row = []string{r.name, ms(median(r.took)), ms(r.took[len(r.took)*95/100])}
		}
		out = append(out, row)
	}
	table("From ready, 30 to 100 ms after the start, to the return of the waiter", []string{"", "p50 ms", "p95 ms"}, out)
	return nil
}

func (l *lab) command(args ...string) *exec.Cmd {
	cmd := exec.Command(l.procsup, args...)
	if *binary != "" {
		cmd.Env = append(l.env, "PATH="+l.dir+":"+os.Getenv("PATH"))
	} else {
		cmd.Env = l.env
	}
	cmd.Stderr = os.Stderr
	return cmd
}

// opened runs a wait, opens what it waits for after the delay, and says how long
// after that the wait returned.
func opened(wait *exec.Cmd, delay time.Duration, open func() error) (time.Duration, error) {
	if err := wait.Start(); err != nil {
		return 0, err
	}
	time.Sleep(delay)
	if err := open(); err != nil {
		return 0, err
	}
	began := time.Now()
	err := wait.Wait()
	return time.Since(began), err
}

func (l *lab) awaitTCP(delay time.Duration, _ int) (time.Duration, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr := free.Addr().String()
	free.Close()
	var on net.Listener
	d, err := opened(l.command("await", "tcp:"+addr), delay, func() (err error) { on, err = net.Listen("tcp", addr); return err })
	if on != nil {
		on.Close()
	}
	return d, err
}

func (l *lab) awaitUnix(delay time.Duration, n int) (time.Duration, error) {
	path := filepath.Join(l.dir, fmt.Sprint("u", n))
	var on net.Listener
	d, err := opened(l.command("await", "unix:"+path), delay, func() (err error) { on, err = net.Listen("unix", path); return err })
	if on != nil {
		on.Close()
	}
	return d, err
}

func (l *lab) awaitFile(delay time.Duration, n int) (time.Duration, error) {
	path := filepath.Join(l.dir, fmt.Sprint("f", n))
	return opened(l.command("await", "file:"+path), delay, func() error { return os.WriteFile(path, nil, 0o600) })
}

// waitReady starts a command that is ready after the delay and waits for it.
func (l *lab) waitReady(kind, cond string, delay time.Duration, n int) (time.Duration, error) {
	note := filepath.Join(l.dir, kind+strconv.Itoa(n))
	h, err := l.command("start", "--ready", cond, "--", l.self, child, "beready", kind, note, delay.String()).Output()
	if err != nil {
		return 0, err
	}
	id := strings.TrimSpace(string(h))
	if err := l.command("wait-ready", id).Run(); err != nil {
		return 0, err
	}
	end := monotonic()
	if err := l.command("cancel", id).Run(); err != nil {
		return 0, err
	}
	return sinceNote(note, end)
}

// waitS6 is the same under s6-supervise.
func (l *lab) waitS6(delay time.Duration, n int) (time.Duration, error) {
	dir, note := filepath.Join(l.dir, fmt.Sprint("s6-", n)), filepath.Join(l.dir, fmt.Sprint("s6note", n))
	run := fmt.Sprintf("#!/bin/sh\nexec %s %s ready fd %s %s\n", l.self, child, note, delay)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, err
	}
	if err := os.WriteFile(dir+"/run", []byte(run), 0o755); err != nil {
		return 0, err
	}
	if err := os.WriteFile(dir+"/notification-fd", []byte("3\n"), 0o644); err != nil {
		return 0, err
	}
	sup := exec.Command("s6-supervise", dir)
	if err := sup.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = exec.Command("s6-svc", "-xd", dir).Run(); _ = sup.Wait() }()
	for { // it makes its control files first
		if exec.Command("s6-svok", dir).Run() == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := exec.Command("s6-svwait", "-U", dir).Run(); err != nil {
		return 0, err
	}
	return sinceNote(note, monotonic())
}

// sinceNote is the time from what a child noted.
func sinceNote(note string, end int64) (time.Duration, error) {
	b, err := os.ReadFile(note)
	if err != nil {
		return 0, err
	}
	at, err := strconv.ParseInt(string(b), 10, 64)
	return time.Duration(end - at), err
}

// beReady is the child: ready KIND NOTE DELAY.
func beReady(args []string) error {
	delay, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	time.Sleep(delay)
	if err := os.WriteFile(args[1], []byte(strconv.FormatInt(monotonic(), 10)), 0o600); err != nil {
		return err
	}
	switch args[0] {
	case "notify":
		var fd int
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Sendto(fd, []byte("READY=1"), 0, &unix.SockaddrUnix{Name: os.Getenv("NOTIFY_SOCKET")})
		}
	case "fd":
		_, err = unix.Write(3, []byte("\n"))
	case "output":
		_, err = os.Stdout.WriteString("ready\n")
	}
	if err == nil {
		time.Sleep(time.Minute)
	}
	return err
}
