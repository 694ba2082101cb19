package platform

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A program that is being executed is looked at again so often, with pauses
// that double from the first to the last: nothing tells when it is done.
const (
	execTries      = 100
	firstExecPause = 50 * time.Microsecond
	lastExecPause  = 2 * time.Millisecond
)

// Environ returns the value of one variable in the environment a process was
// started with (proc(5) environ), and whether it was there. It is unreadable
// for processes of other users. In the middle of execve(2) there is none: it
// waits for the new program's.
func Environ(pid int, name string) (v string, ok bool, err error) {
	whenExecuted(func() bool {
		var sure bool
		v, ok, sure, err = EnvironNow(pid, name)
		return sure || err != nil
	})
	return v, ok, err
}

// whenExecuted looks at a process until what is seen is sure: in the middle of
// execve(2) it has neither an environment nor arguments.
func whenExecuted(look func() (sure bool)) {
	pause := firstExecPause
	for range execTries {
		if look() {
			return
		}
		time.Sleep(pause)
		pause = min(2*pause, lastExecPause)
	}
}

// EnvironNow is Environ for who cannot wait: not sure says that the process is, or
// was when it was looked at, in the middle of execve(2).
func EnvironNow(pid int, name string) (v string, ok, sure bool, err error) {
	b, err := readFile("/proc/"+strconv.Itoa(pid)+"/environ", make([]byte, 4096))
	if err != nil {
		return "", false, true, fmt.Errorf("read environment of process %d: %w", pid, err)
	}
	prefix := name + "="
	for kv := range strings.SplitSeq(string(b), "\x00") {
		if s, ok := strings.CutPrefix(kv, prefix); ok {
			return s, true, true, nil
		}
	}
	return "", false, len(b) > 0 || withoutEnviron(pid), nil
}

// withoutEnviron reports whether a process whose environment reads as empty has
// none for good, by proc(5) stat: no memory, field 23, as a kernel thread or one
// that ends, or an environment of no length, fields 50 and 51. In the middle of
// execve(2) there is memory, and the begin of the code, field 26, is 0 until the
// environment is whole (load_elf_binary in fs/binfmt_elf.c).
func withoutEnviron(pid int) bool {
	f := statFields(pid)
	if len(f) < 49 || string(f[20]) == "0" {
		return true
	}
	return string(f[23]) != "0" && string(f[47]) == string(f[48])
}

// statFields are those of proc(5) stat from the third on, nil when it is gone.
func statFields(pid int) [][]byte {
	b, err := readFile("/proc/"+strconv.Itoa(pid)+"/stat", make([]byte, 1024))
	if err != nil {
		return nil
	}
	return bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
}
