package platform

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A Stat is one reading of /proc/PID/stat, see proc(5).
type Stat struct {
	PID        int
	Comm       string
	State      byte // R S D T t Z X …
	PPID       int
	PGID       int
	SID        int
	Threads    int
	StartTicks uint64
}

// Alive reports whether the process can still run: a zombie (Z) or dead (X)
// process cannot, unless only its first thread has ended and others go on.
func (s Stat) Alive() bool {
	if s.State == 'Z' {
		return s.Threads > 1
	}
	return s.State != 'X' && s.State != 0
}

// readFile reads a whole small file of /proc or /sys with three system calls;
// os.ReadFile would register it with the poller and stat it first.
func readFile(path string, buf []byte) ([]byte, error) {
	fd, err := openRetry(path, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for n := 0; ; {
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf)+4096)...)
		}
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if m == 0 {
			return buf[:n], nil
		}
		n += m
	}
}

// readOnce is readFile for a file that the kernel gives whole in one read when
// buf has room for it, as all that is made by single_open (fs/seq_file.c).
func readOnce(path string, buf []byte) ([]byte, error) {
	fd, err := openRetry(path, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, buf)
		if err != unix.EINTR {
			return buf[:max(n, 0)], err
		}
	}
}

func openRetry(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// ReadStat reads /proc/PID/stat. A process that is gone is ErrGone.
func ReadStat(pid int) (Stat, error) {
	var buf [1024]byte
	b, err := readOnce("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		return Stat{}, fmt.Errorf("process %d: %w", pid, ErrGone)
	case err != nil:
		return Stat{}, fmt.Errorf("read stat of process %d: %w", pid, err)
	}
	s, ok := parseStat(b)
	if !ok || s.PID != pid {
		// Short reads happen while a process is going away.
		return Stat{}, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return s, nil
}

// parseStat reads the fields by the last ')': a command name may hold spaces
// and parentheses.
func parseStat(b []byte) (Stat, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 2 || end < open || end+2 >= len(b) {
		return Stat{}, false
	}
	pid, err := strconv.Atoi(string(b[:open-1]))
	if err != nil {
		return Stat{}, false
	}
	f := strings.Fields(string(b[end+2:]))
	if len(f) < 20 || len(f[0]) != 1 {
		return Stat{}, false
	}
	s := Stat{PID: pid, Comm: string(b[open+1 : end]), State: f[0][0]}
	for _, x := range []struct {
		to *int
		at int
	}{{&s.PPID, 1}, {&s.PGID, 2}, {&s.SID, 3}, {&s.Threads, 17}} {
		if *x.to, err = strconv.Atoi(f[x.at]); err != nil {
			return Stat{}, false
		}
	}
	if s.StartTicks, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return Stat{}, false
	}
	return s, true
}

// BootID is the random id of this boot, from
// /proc/sys/kernel/random/boot_id; empty if it cannot be read.
var BootID = sync.OnceValue(func() string {
	var buf [64]byte
	b, err := readFile("/proc/sys/kernel/random/boot_id", buf[:])
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// Identify reads the identity of a process. It is only sound for a process
// that cannot be reaped meanwhile, or when the caller holds its pidfd.
func Identify(pid int) (Identity, error) {
	s, err := ReadStat(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{BootID: BootID(), PID: pid, StartTicks: s.StartTicks}, nil
}

// Liveness says whether the very process that id names still runs. Another
// boot, another start time, a zombie and a missing entry are all Exited.
func (id Identity) Liveness() Liveness {
	boot := BootID()
	if boot == "" || id.BootID == "" || id.PID <= 0 {
		return Unverifiable
	}
	if boot != id.BootID {
		return Exited
	}
	s, err := ReadStat(id.PID)
	switch {
	case errors.Is(err, ErrGone):
		// With hidepid a stranger's process looks gone too; kill(2) with
		// signal 0 tells the two apart.
		if unix.Kill(id.PID, 0) == unix.EPERM {
			return Unverifiable
		}
		return Exited
	case err != nil:
		return Unverifiable
	case s.StartTicks != id.StartTicks || !s.Alive():
		return Exited
	}
	return Live
}

// CommandLine is the argument vector of a process joined by spaces, or its
// name in brackets when it has none (a zombie, a kernel thread). At most max
// bytes, cut at a rune; 0 = 200.
func CommandLine(pid, max int) string {
	if max == 0 {
		max = 200
	}
	var buf [1024]byte
	b, err := readFile("/proc/"+strconv.Itoa(pid)+"/cmdline", buf[:])
	if err != nil || len(b) == 0 {
		if s, err := ReadStat(pid); err == nil {
			return "[" + s.Comm + "]"
		}
		return ""
	}
	s := strings.ToValidUTF8(strings.ReplaceAll(strings.TrimRight(string(b), "\x00"), "\x00", " "), "?")
	if len(s) > max {
		s = strings.ToValidUTF8(s[:max], "") + "…"
	}
	return s
}
