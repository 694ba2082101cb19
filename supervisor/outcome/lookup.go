package outcome

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
)

// Exit codes of a command that could not be started, design.md §8.
const (
	ExitProcsup  = 125
	ExitCannot   = 126
	ExitNotFound = 127
)

// A Failure is a command that could not be started: what to say, with which
// exit code, and the record's view of it.
type Failure struct {
	Code  int
	Msg   string
	Spawn handles.SpawnErr
}

// Fail makes a Failure of a step; the errno is taken from err.
func Fail(code int, step string, err error, path, format string, args ...any) *Failure {
	return &Failure{
		Code: code, Msg: fmt.Sprintf(format, args...),
		Spawn: handles.SpawnErr{Step: step, Path: path, Errno: platform.ErrnoName(err)},
	}
}

// Lookup finds the program the way execvp(3) does, in the PATH the command
// itself will see: env(1) does the same.
func Lookup(name string, env []string, dir string) (string, *Failure) {
	if strings.Contains(name, "/") {
		return name, nil // the kernel says what is wrong with it
	}
	path := os.Getenv("PATH")
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	var denied string
	for _, d := range filepath.SplitList(path) {
		if d == "" {
			d = "."
		}
		file := d + "/" + name
		at := within(dir, file)
		st, err := os.Stat(at)
		if err != nil {
			continue
		}
		if !st.IsDir() && platform.CanExecute(at) {
			return file, nil
		}
		if denied == "" {
			denied = file
		}
	}
	if st, err := os.Stat(within(dir, denied)); denied != "" && err == nil && st.IsDir() {
		return "", Fail(ExitCannot, "lookup", syscall.EACCES, denied, "%s: is a directory", denied)
	}
	if denied != "" {
		return "", Fail(ExitCannot, "lookup", syscall.EACCES, denied, "%s: not executable (permission denied); try: chmod +x %s", denied, denied)
	}
	return "", Fail(ExitNotFound, "lookup", syscall.ENOENT, name, "%s: command not found in PATH=%s", name, path)
}

// Explain says why a command could not be started, as precisely as the files
// concerned allow.
func Explain(err error, argv, env []string, dir string) *Failure {
	var se *pgroup.StartError
	if !errors.As(err, &se) {
		return Fail(ExitProcsup, "start", err, argv[0], "run %s: %v", argv[0], err)
	}
	if se.Step != "exec" {
		return Fail(ExitProcsup, se.Step, se.Err, se.Path, "run %s: %s %s: %v", argv[0], se.Step, se.Path, se.Err)
	}
	at := within(dir, se.Path)
	switch {
	case errors.Is(se.Err, syscall.ENOENT):
		if interp := platform.Interpreter(at); interp != "" {
			return Fail(ExitCannot, "exec", se.Err, interp, "%s: its interpreter %s does not exist", at, interp)
		}
		return Fail(ExitNotFound, "exec", se.Err, at, "%s: no such file", at)
	case errors.Is(se.Err, syscall.E2BIG):
		what, n := biggest(argv, env)
		return Fail(ExitCannot, "exec", se.Err, at, "%s: arguments and environment are too long for the kernel; the longest is %s with %d bytes", at, what, n)
	case errors.Is(se.Err, syscall.ENOEXEC):
		return Fail(ExitCannot, "exec", se.Err, at, "%s: not a program: neither a binary for this machine nor a script with #! in its first line", at)
	case errors.Is(se.Err, syscall.EACCES):
		if st, err := os.Stat(at); err == nil && st.IsDir() {
			return Fail(ExitCannot, "exec", se.Err, at, "%s: is a directory", at)
		} else if interp := platform.Interpreter(at); err == nil && st.Mode()&0o111 != 0 && interp != "" && !platform.CanExecute(interp) {
			return Fail(ExitCannot, "exec", se.Err, interp, "%s: its interpreter %s cannot be executed", at, interp)
		}
		return Fail(ExitCannot, "exec", se.Err, at, "%s: not executable (permission denied)", at)
	case errors.Is(se.Err, syscall.ENOTDIR):
		return Fail(ExitNotFound, "exec", se.Err, at, "%s: a part of the path is not a directory", at)
	}
	return Fail(ExitCannot, "exec", se.Err, at, "%s: cannot be executed: %v", at, se.Err)
}

// biggest names the longest argument or variable.
func biggest(argv, env []string) (what string, size int) {
	for i, a := range argv {
		if len(a) > size {
			what, size = fmt.Sprintf("argument %d", i), len(a)
		}
	}
	for _, kv := range env {
		if len(kv) > size {
			name, _, _ := strings.Cut(kv, "=")
			what, size = "variable "+name, len(kv)
		}
	}
	return what, size
}

// within is where a path leads for a command that runs in dir.
func within(dir, path string) string {
	if dir == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
