package keeper

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A halfway is a child between fork and exec: it waits for one byte from the
// gate and then executes, or exits when there is nothing to execute.
type halfway struct {
	gate int
	out  int // its stdout
	path *byte
	argv []*byte
	env  []*byte
}

// fork makes the child as syscall.ForkExec does, which cannot be stopped in
// between. The child makes only raw system calls, on a copy of this thread.
//
//go:norace
//go:noinline
func (h *halfway) fork() (pid int, errno syscall.Errno) {
	var b [1]byte
	r, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || r != 0 {
		return int(r), errno
	}
	syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	syscall.RawSyscall(syscall.SYS_DUP3, uintptr(h.out), 1, 0)
	n, _, _ := syscall.RawSyscall(syscall.SYS_READ, uintptr(h.gate), addr(&b[0]), 1)
	if n == 1 && h.path != nil {
		syscall.RawSyscall(syscall.SYS_EXECVE, addr(h.path), addr(&h.argv[0]), addr(&h.env[0]))
	}
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 253, 0, 0)
	}
}

// lingerRole is a command that is this program.
func lingerRole(args []string) int {
	f, err := os.Open(args[0])
	if err != nil {
		return 99
	}
	fmt.Println("lingers")
	fmt.Fscanln(f)
	return 6
}

// forkHalfway leaves a child of run id before its exec: with no script it will
// end there. The program is a shell, or this test's own with "self".
func (m *manual) forkHalfway(id, gate, script string) (int, error) {
	f, err := unix.Open(gate, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	r := m.runs[id]
	h := &halfway{gate: f, out: int(r.write[0].Fd())}
	argv := []string{"/bin/sh", "-c", script}
	env := []string{"PATH=/bin:/usr/bin", tokenVar + "=outer/" + id, "GORACE=atexit_sleep_ms=0"}
	if script != "" {
		if role, ok := strings.CutPrefix(script, "self "); ok { // a command that is the supervisor's program
			argv, env = []string{"/proc/self/exe"}, append(env, roleEnv+"="+role)
		}
		if h.path, err = unix.BytePtrFromString(argv[0]); err != nil {
			return 0, err
		}
		h.argv, _ = syscall.SlicePtrFromStrings(argv)
		h.env, _ = syscall.SlicePtrFromStrings(env)
	}
	var pid int
	var errno syscall.Errno
	start := func() { pid, errno = h.fork() }
	if m.unmarked {
		start()
	} else {
		m.link.Mark(id, start)
	}
	closeFiles(r.write)
	r.write, r.pid = nil, pid
	unix.Close(f)
	if errno != 0 {
		return 0, fmt.Errorf("fork: %w", os.NewSyscallError("clone", errno))
	}
	return pid, nil
}
