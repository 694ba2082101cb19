package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
)

// reason is the bare cause of a path error.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// A startFailure is a command that could not be started: what to say, with
// which code, and the record's view of it.
type startFailure struct {
	code int
	msg  string
	rec  handles.SpawnErr
}

func fail(code int, step string, err error, path, format string, args ...any) *startFailure {
	return &startFailure{
		code: code, msg: fmt.Sprintf(format, args...),
		rec: handles.SpawnErr{Step: step, Path: path, Errno: platform.ErrnoName(err)},
	}
}

// lookup finds the program the way execvp(3) does, in the PATH the command
// itself will see: env(1) does the same.
func lookup(name string, env []string, dir string) (string, *startFailure) {
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
		return "", fail(exitCannot, "lookup", syscall.EACCES, denied, "%s: is a directory", denied)
	}
	if denied != "" {
		return "", fail(exitCannot, "lookup", syscall.EACCES, denied, "%s: not executable (permission denied); try: chmod +x %s", denied, denied)
	}
	return "", fail(exitNotFound, "lookup", syscall.ENOENT, name, "%s: command not found in PATH=%s", name, path)
}

// explain says why a command could not be started, as precisely as the files
// concerned allow.
func explain(err error, o *options) *startFailure {
	var se *pgroup.StartError
	if !errors.As(err, &se) {
		return fail(exitProcsup, "start", err, o.argv[0], "run %s: %v", o.argv[0], err)
	}
	if se.Step != "exec" {
		return fail(exitProcsup, se.Step, se.Err, se.Path, "run %s: %s %s: %v", o.argv[0], se.Step, se.Path, se.Err)
	}
	at := within(o.dir, se.Path)
	switch {
	case errors.Is(se.Err, syscall.ENOENT):
		if interp := platform.Interpreter(at); interp != "" {
			return fail(exitCannot, "exec", se.Err, interp, "%s: its interpreter %s does not exist", at, interp)
		}
		return fail(exitNotFound, "exec", se.Err, at, "%s: no such file", at)
	case errors.Is(se.Err, syscall.E2BIG):
		what, n := biggest(o.argv, o.env)
		return fail(exitCannot, "exec", se.Err, at, "%s: arguments and environment are too long for the kernel; the longest is %s with %d bytes", at, what, n)
	case errors.Is(se.Err, syscall.ENOEXEC):
		return fail(exitCannot, "exec", se.Err, at, "%s: not a program: neither a binary for this machine nor a script with #! in its first line", at)
	case errors.Is(se.Err, syscall.EACCES):
		if st, err := os.Stat(at); err == nil && st.IsDir() {
			return fail(exitCannot, "exec", se.Err, at, "%s: is a directory", at)
		} else if interp := platform.Interpreter(at); err == nil && st.Mode()&0o111 != 0 && interp != "" && !platform.CanExecute(interp) {
			return fail(exitCannot, "exec", se.Err, interp, "%s: its interpreter %s cannot be executed", at, interp)
		}
		return fail(exitCannot, "exec", se.Err, at, "%s: not executable (permission denied)", at)
	case errors.Is(se.Err, syscall.ENOTDIR):
		return fail(exitNotFound, "exec", se.Err, at, "%s: a part of the path is not a directory", at)
	}
	return fail(exitCannot, "exec", se.Err, at, "%s: cannot be executed: %v", at, se.Err)
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
