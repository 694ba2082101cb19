package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A sink stores what a writer writes.
type sink struct {
	name string
	need string // a program that must be installed; empty: none
	root bool   // only as root
	// start runs the writer with its output going to dir and returns when every
	// byte is there; the processes it waited for are the sink's and the writer's.
	start func(dir string, writer []string, env []string) error
	wall  map[string][]time.Duration
	cpu   map[string][]time.Duration
	note  string
}

// nobody is another user than root.
const nobody = 65534

const captureRounds = 3

func sinks(l *lab) []*sink {
	return []*sink{
		{name: "redirected to a file (bare)", start: func(dir string, writer, env []string) error {
			return toFile(command(writer, env), filepath.Join(dir, "out"))
		}},
		{name: "a Go pump, 64 KiB", start: func(dir string, writer, env []string) error {
			return pipeline(writer, []string{l.self, child, "pump", filepath.Join(dir, "out")}, env)
		}},
		{name: "s6-log", need: "s6-log", start: func(dir string, writer, env []string) error {
			return pipeline(writer, []string{"s6-log", "n4", "s268435455", filepath.Join(dir, "log")}, env)
		}},
		{name: "svlogd", need: "svlogd", start: func(dir string, writer, env []string) error {
			log := filepath.Join(dir, "log")
			if err := os.Mkdir(log, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(log, "config"), []byte("s0\n"), 0o644); err != nil {
				return err
			}
			return pipeline(writer, []string{"svlogd", log}, env)
		}},
		{name: "supervisord, no rotation", need: "supervisord", start: supervisord},
		{name: "procsup run --capture", start: func(dir string, writer, env []string) error {
			argv := []string{l.procsup, "run", "--max-output", "100G", "--capture", filepath.Join(dir, "log"), "--"}
			return wait(command(append(argv, writer...), env))
		}},
		{name: "procsup run --json", start: func(dir string, writer, env []string) error {
			return wait(command(append([]string{l.procsup, "run", "--json", "--"}, writer...), env))
		}},
		{name: "package capture", start: l.library(0, "-", 0)},
		{name: "  with a literal matcher", start: l.library(0, "not in it", 0)},
		{name: "  not root, 200 idle handles", root: true, start: l.library(200, "-", nobody)},
		{name: "  the same with a matcher", root: true, start: l.library(200, "not in it", nobody)},
	}
}

func (l *lab) library(idle int, match string, uid uint32) func(string, []string, []string) error {
	return func(dir string, writer, env []string) error {
		args := append([]string{l.self, child, "library", dir, strconv.Itoa(idle), match}, writer[3:]...)
		cmd := command(args, env)
		if uid != 0 {
			if err := os.Chown(dir, int(uid), int(uid)); err != nil {
				return err
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		}
		return wait(cmd)
	}
}

func command(argv, env []string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	return cmd
}

func wait(cmd *exec.Cmd) error { return cmd.Run() }

func toFile(cmd *exec.Cmd, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd.Stdout = f
	return cmd.Run()
}

func pipeline(writer, reader, env []string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	to, from := command(reader, env), command(writer, env)
	to.Stdin, from.Stdout = r, w
	err = to.Start()
	r.Close()
	if err == nil {
		err = from.Run()
	}
	w.Close()
	if err != nil {
		return err
	}
	return to.Wait()
}

// supervisord runs one program and is ended when the log holds every byte.
func supervisord(dir string, writer, env []string) error {
	conf, log := filepath.Join(dir, "conf"), filepath.Join(dir, "out")
	text := fmt.Sprintf("[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile=%s/pid\n[program:w]\ncommand=%s\nautorestart=false\nstartsecs=0\nstdout_logfile=%s\nstdout_logfile_maxbytes=0\n",
		dir, strings.Join(writer, " "), log)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return err
	}
	cmd := command([]string{"supervisord", "-n", "-c", conf}, env)
	cmd.Stderr = nil
	if err := cmd.Start(); err != nil {
		return err
	}
	want, _ := strconv.ParseInt(writer[len(writer)-1], 10, 64)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if st, err := os.Stat(log); err == nil && st.Size() >= want {
			break
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	return cmd.Wait()
}

// captureItem is item 3 of performance.md: who stores a command's output, how
// fast and for how much CPU.
func captureItem(l *lab) error {
	all := sinks(l)
	kinds := []string{"lines", "unbuffered", "blocks"}
	for range captureRounds {
		for _, s := range all {
			for _, kind := range kinds {
				if err := l.store(s, kind); err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, kind, err)
				}
			}
		}
	}
	var rows [][]string
	for _, s := range all {
		row := []string{s.name}
		if s.note != "" {
			row = append(row, s.note)
		}
		for _, kind := range kinds {
			if len(s.wall[kind]) == 0 {
				continue
			}
			wall, bare := median(s.wall[kind]), median(all[0].wall[kind])
			gib := float64(size(kind)) / (1 << 30)
			row = append(row, fmt.Sprintf("%.0f", float64(size(kind))/wall.Seconds()/1e6), ratio(bare, wall), fmt.Sprintf("%.2f", median(s.cpu[kind]).Seconds()/gib))
		}
		rows = append(rows, row)
	}
	table(fmt.Sprintf("3. Capture (%d MiB a writer, an eighth for unbuffered lines; %d interleaved rounds, medians; CPU is the sink's, s per GiB)", *mib, captureRounds),
		[]string{"", "lines MB/s", "× bare", "CPU", "unbuffered", "× bare", "CPU", "blocks", "× bare", "CPU"}, rows)
	return nil
}

func size(kind string) int64 {
	n := int64(*mib) << 20
	if kind == "unbuffered" {
		n /= 8
	}
	return n / (320 << 10) * (320 << 10) // a multiple of every write
}

// store measures one writer into one sink and checks that every byte arrived.
func (l *lab) store(s *sink, kind string) error {
	switch {
	case s.need != "" && !installed(s.need):
		s.note = "absent"
		return nil
	case s.root && os.Geteuid() != 0:
		s.note = "needs root"
		return nil
	}
	dir, err := os.MkdirTemp(memoryDir(), "procsup-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	note := filepath.Join(dir, "writer-note")
	if err := os.WriteFile(note, nil, 0o666); err != nil {
		return err
	}
	os.Chmod(note, 0o666)
	before := childrenCPU()
	env := append(os.Environ(), "WRITER_NOTE="+note)
	if err := s.start(dir, []string{l.self, child, "writer", kind, strconv.FormatInt(size(kind), 10)}, env); err != nil {
		return err
	}
	end := time.Now().UnixNano()
	text, err := os.ReadFile(note)
	if err != nil {
		return err
	}
	var began, writerCPU int64
	if _, err := fmt.Sscan(string(text), &began, &writerCPU); err != nil {
		return fmt.Errorf("the writer did not end: %w", err)
	}
	if got := stored(dir); s.name != "procsup run --json" && got < size(kind) {
		return fmt.Errorf("%d of %d bytes stored", got, size(kind))
	}
	if s.wall == nil {
		s.wall, s.cpu = map[string][]time.Duration{}, map[string][]time.Duration{}
	}
	s.wall[kind] = append(s.wall[kind], time.Duration(end-began))
	s.cpu[kind] = append(s.cpu[kind], childrenCPU()-before-time.Duration(writerCPU))
	return nil
}

func memoryDir() string {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func stored(dir string) (n int64) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if info, ierr := d.Info(); err == nil && ierr == nil && !d.IsDir() {
			n += info.Size()
		}
		return nil
	})
	return n
}
