package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A killer ends a tree. start runs the tree in its wrapper; stop returns when
// the wrapper says that it is done, or when watch is over.
type killer struct {
	name string
	argv []string // the wrapper; nil for the bare kills
	bare func(cmd *exec.Cmd, cgroup string) error
	need string
}

const watch = 2500 * time.Millisecond

func killers(l *lab) []killer {
	run := func(level string) []string {
		return []string{l.procsup, "run", "--grace", "1s", "--quiet", "--containment", level, "--"}
	}
	return []killer{
		{name: "bare cgroup.kill", need: "cgroup", bare: func(_ *exec.Cmd, cgroup string) error {
			return os.WriteFile(filepath.Join(cgroup, "cgroup.kill"), []byte("1"), 0)
		}},
		{name: "bare kill of the group, 1 s, KILL", bare: killGroup},
		{name: "timeout -k 1", need: "timeout", argv: []string{"timeout", "-k", "1", "100"}},
		{name: "tini -g", need: "tini", argv: []string{"tini", "-s", "-g", "--"}},
		{name: "dumb-init", need: "dumb-init", argv: []string{"dumb-init"}},
		{name: "Go, setpgid, wait (30 lines)", argv: []string{l.gowrap}},
		{name: "procsup run (" + autoLevel(l) + ")", argv: run("auto")},
		{name: "procsup run, tree", argv: run("tree")},
		{name: "procsup run, group", argv: run("group")},
	}
}

func autoLevel(l *lab) string {
	out, _ := exec.Command(l.procsup, "run", "--json", "--", "true").Output()
	for _, level := range []string{"cgroup", "tree", "group"} {
		if bytes.Contains(out, []byte(`"containment":"`+level+`"`)) {
			return level
		}
	}
	return "auto"
}

// killGroup is what a careful program does with kill(2) alone.
func killGroup(cmd *exec.Cmd, _ string) error {
	unix.Kill(-cmd.Process.Pid, unix.SIGTERM)
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		if !groupLives(cmd.Process.Pid) {
			return nil
		}
	}
	unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	return nil
}

// groupLives looks for a member that is no zombie: kill(-pgid, 0) counts those.
func groupLives(pgid int) bool {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) > 2 && f[2] == strconv.Itoa(pgid) && f[0] != "Z" && f[0] != "X" {
			return true
		}
	}
	return false
}

// An outcome is how one tree ended.
type outcome struct {
	gone, returned time.Duration // -1: not in the time watched
	left, early    []string      // alive at the end; alive when the call returned
}

// kill is item 5 of performance.md: four kinds of tree, who ends them, when,
// and what is left.
func kill(l *lab) error {
	modes := []string{"obey", "ignore", "mixed", "escape"}
	n := map[string]int{"obey": max(2, *rounds/10), "ignore": max(1, *rounds/50), "mixed": max(1, *rounds/50), "escape": max(1, *rounds/50)}
	var rows [][]string
	for _, k := range killers(l) {
		if k.need == "cgroup" && !cgroupsWork() || k.need != "" && k.need != "cgroup" && !installed(k.need) {
			rows = append(rows, []string{k.name, "absent"})
			continue
		}
		row := []string{k.name}
		for _, mode := range modes {
			var all []outcome
			for range n[mode] {
				o, err := l.trial(k, mode)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", k.name, mode, err)
				}
				all = append(all, o)
			}
			row = append(row, summary(all))
		}
		rows = append(rows, row)
	}
	table("5. Stopping a leader with two children (grace 1 s; call returned, ms, median; LEFT: alive at the end; early: alive when the call returned)",
		append([]string{""}, "obeys TERM", "all ignore TERM", "children ignore it", "one escaped by setsid"), rows)
	return nil
}

func summary(all []outcome) string {
	var returned []time.Duration
	var left, early []string
	for _, o := range all {
		if o.returned >= 0 {
			returned = append(returned, o.returned)
		}
		left, early = append(left, o.left...), append(early, o.early...)
	}
	text := "never"
	if len(returned) > 0 {
		text = fmt.Sprintf("%.1f", float64(median(returned).Microseconds())/1000)
	}
	for _, part := range []struct {
		word  string
		names []string
	}{{"LEFT", left}, {"early", early}} {
		slices.Sort(part.names)
		if names := slices.Compact(part.names); len(names) > 0 {
			text += " " + part.word + " " + strings.Join(names, ",")
		}
	}
	return text
}

// trial starts a tree, waits until it is up, stops it and watches every member
// through a pidfd.
func (l *lab) trial(k killer, mode string) (outcome, error) {
	dir, err := os.MkdirTemp("", "procsup-bench-")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(dir)
	argv := append(k.argv[:len(k.argv):len(k.argv)], l.self, child, "tree", mode, dir)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var cgroup string
	if k.need == "cgroup" {
		// A new one each time: a child cloned into a cgroup that was killed
		// once is killed at once (seen on Linux 6.18).
		if cgroup, err = makeCgroup(); err != nil {
			return outcome{}, err
		}
		defer os.Remove(cgroup)
		fd, err := unix.Open(cgroup, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return outcome{}, err
		}
		defer unix.Close(fd)
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
	}
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	members, err := membersOf(dir)
	if err != nil {
		cmd.Process.Kill()
		return outcome{}, err
	}
	start := time.Now()
	ended := make(chan time.Duration, 1)
	go func() { // ends with the wrapper, which is killed below if need be
		if k.bare != nil {
			k.bare(cmd, cgroup)
			ended <- time.Since(start)
			cmd.Wait()
			return
		}
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		ended <- time.Since(start)
	}()
	o := members.watch(start, ended)
	cmd.Process.Kill()
	return o, nil
}
