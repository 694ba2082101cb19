package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"procsup/handles"
	"procsup/platform"
)

// A resultFile is where --result goes. nil: nowhere.
type resultFile struct {
	file *os.File
	fd   int // the caller's descriptor, or -1
}

// openResult opens FILE, or takes descriptor N of fd:N, before anything runs.
func openResult(o *options, signals *caught) (*resultFile, error) {
	spec := o.result
	if spec == "" {
		return nil, nil
	}
	if n, ok := strings.CutPrefix(spec, "fd:"); ok {
		fd, err := strconv.Atoi(n)
		if err != nil || fd < 0 {
			return nil, usagef("run: --result %s: not a descriptor number", spec)
		}
		if fd > 2 && !platform.SetCloexec(fd) {
			return nil, unusable("run: --result %s: descriptor %d is not open", spec, fd)
		}
		return &resultFile{file: os.NewFile(uintptr(fd), spec), fd: fd}, nil
	}
	f, err := signals.open(spec, os.O_WRONLY|os.O_CREATE, o.deadline)
	if err != nil {
		return nil, unusableFile("--result", spec, err)
	}
	return &resultFile{file: f, fd: -1}, nil
}

func (r *resultFile) usesStdout() bool { return r != nil && r.fd == 1 }

// write replaces the file's content by one line of JSON.
func (r *resultFile) write(rec *handles.Record) error {
	if r == nil {
		return nil
	}
	if st, err := r.file.Stat(); err == nil && st.Mode().IsRegular() && r.fd < 0 {
		if err := r.file.Truncate(0); err != nil {
			return fmt.Errorf("write result %s: %w", r.file.Name(), reason(err))
		}
	}
	return writeJSON(r.file, rec)
}

func writeJSON(f *os.File, rec *handles.Record) error {
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write result %s: %w", f.Name(), reason(err))
	}
	return nil
}
