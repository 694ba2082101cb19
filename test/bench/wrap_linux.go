package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A wrapper is a command line to put in front of another.
type wrapper struct {
	name   string
	argv   []string
	absent bool
	wall   []time.Duration
	cpu    []time.Duration
}

func wrappers(l *lab) []*wrapper {
	all := []*wrapper{
		{name: "true (bare)"},
		{name: "empty Go program", argv: []string{l.empty}}, // runs nothing
		{name: "Go, setpgid, wait (30 lines)", argv: []string{l.gowrap}},
		{name: "sh -c", argv: []string{"sh", "-c", `"$0" "$@"; exit $?`}},
		{name: "setsid -w", argv: []string{"setsid", "-f", "-w"}},
		{name: "tini -s", argv: []string{"tini", "-s", "--"}},
		{name: "dumb-init", argv: []string{"dumb-init"}},
		{name: "timeout 10", argv: []string{"timeout", "10"}},
		{name: "procsup run", argv: []string{l.procsup, "run", "--"}},
		{name: "procsup run, tree", argv: []string{l.procsup, "run", "--containment", "tree", "--"}},
		{name: "procsup run, group", argv: []string{l.procsup, "run", "--containment", "group", "--"}},
	}
	for _, w := range all {
		w.absent = len(w.argv) > 0 && !installed(w.argv[0])
	}
	return all
}

// wrap is item 1 of performance.md: a short command in a wrapper.
func wrap(l *lab) error {
	all := wrappers(l)
	for i := 0; i < *rounds+3; i++ {
		for _, w := range all {
			if w.absent {
				continue
			}
			wall, cpu, err := spawn(append(w.argv[:len(w.argv):len(w.argv)], "true"))
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if i >= 3 { // the first rounds fill caches
				w.wall, w.cpu = append(w.wall, wall), append(w.cpu, cpu)
			}
		}
	}
	bare, goWall, goCPU := median(all[0].wall), median(all[2].wall), median(all[2].cpu)
	var rows [][]string
	for _, w := range all {
		if w.absent {
			rows = append(rows, []string{w.name, "absent"})
			continue
		}
		wall, cpu := median(w.wall), median(w.cpu)
		own, guard := memory(w.argv)
		rows = append(rows, []string{
			w.name, us(wall), ratio(wall, bare), ratio(wall, goWall), us(cpu), ratio(cpu, goCPU), own, guard,
		})
	}
	table(fmt.Sprintf("1. Wrapping a short command (WRAPPER true, %d interleaved rounds, medians; CPU with the guard's)", *rounds),
		[]string{"", "wall µs", "× bare", "× Go", "CPU µs", "× Go", "peak KiB", "guard KiB"}, rows)
	return nil
}

func us(d time.Duration) string { return fmt.Sprint(d.Microseconds()) }

func ratio(a, b time.Duration) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

// spawn runs a command and gives its wall time and the CPU time of all that it
// started, what it did not wait for itself (a guard) included: that is waited
// for here, after the clock was stopped.
func spawn(argv []string) (wall, cpu time.Duration, err error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, 0, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, 0, err
	}
	defer null.Close()
	before := childrenCPU()
	start := time.Now()
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}})
	if err != nil {
		return 0, 0, err
	}
	var status unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	wall = time.Since(start)
	if err == nil && status.ExitStatus() != 0 {
		err = fmt.Errorf("%v: exit %d", argv, status.ExitStatus())
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
		if _, werr := unix.Wait4(-1, nil, unix.WNOHANG, nil); werr == unix.ECHILD {
			break
		}
	}
	return wall, childrenCPU() - before, err
}

func childrenCPU() time.Duration { return cpuOf(unix.RUSAGE_CHILDREN) }

func cpuOf(who int) time.Duration {
	var u unix.Rusage
	unix.Getrusage(who, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory is the peak of the wrapper itself and of a guard beside it, taken from
// inside the wrapped command: a rusage would show the size of who forked it.
func memory(argv []string) (own, guard string) {
	const look = `sleep .05; grep VmHWM /proc/$PPID/status
for p in $(cat /proc/$PPID/task/*/children); do grep -q "gua[r]d" /proc/$p/cmdline && grep VmHWM /proc/$p/status; done; true`
	if len(argv) == 0 || strings.HasSuffix(argv[0], "/empty") {
		return "-", "-"
	}
	out, err := exec.Command(argv[0], append(argv[1:len(argv):len(argv)], "sh", "-c", look)...).Output()
	if err != nil {
		return "?", "?"
	}
	own, guard = "?", "-"
	for i, line := range bytes.Split(bytes.TrimSpace(out), []byte("\n")) {
		f := strings.Fields(string(line))
		if len(f) < 2 {
			continue
		}
		if _, err := strconv.Atoi(f[1]); err != nil {
			continue
		}
		if i == 0 {
			own = f[1]
		} else {
			guard = f[1]
		}
	}
	return own, guard
}
