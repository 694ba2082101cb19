package platform

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// noChildrenFiles is set once /proc/PID/task/TID/children was found missing
// (needs CONFIG_PROC_CHILDREN); then the tree is read by scanning /proc.
var noChildrenFiles atomic.Bool

// Children lists the children of a process, zombies included. The kernel may
// skip one while others are ending (proc(5)): an empty answer counts only when
// it is given twice.
func Children(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	if noChildrenFiles.Load() {
		return childrenByScan(pid)
	}
	var out []int
	var buf [512]byte
	seen := false
	for _, tid := range numericEntries(dir) {
		b, err := readFile(dir+"/"+strconv.Itoa(tid)+"/children", buf[:])
		if err != nil {
			continue
		}
		seen = true
		out = fields(out, b)
	}
	if !seen && unix.Access(dir, unix.F_OK) == nil && unix.Access("/proc/self/task/"+strconv.Itoa(unix.Gettid())+"/children", unix.F_OK) == unix.ENOENT {
		noChildrenFiles.Store(true)
		return childrenByScan(pid)
	}
	return out
}

// AdoptedChildren lists what an orphan that this process adopted can be among:
// the children of its first thread, to which the kernel gives orphans
// (find_new_reaper in kernel/exit.c). Children that other threads started are
// not in it, so it costs one file where Children costs one for each thread.
func AdoptedChildren() []int {
	if noChildrenFiles.Load() {
		return Children(os.Getpid())
	}
	var buf [4096]byte // as much as one read gives, fs/seq_file.c
	self := strconv.Itoa(os.Getpid())
	b, err := readFile("/proc/"+self+"/task/"+self+"/children", buf[:])
	if err != nil {
		return Children(os.Getpid())
	}
	return fields(nil, b)
}

// fields appends the numbers in b to out.
func fields(out []int, b []byte) []int {
	for f := range strings.FieldsSeq(string(b)) {
		if n, err := strconv.Atoi(f); err == nil {
			out = append(out, n)
		}
	}
	return out
}

func childrenByScan(pid int) []int {
	var out []int
	ScanProcesses(func(s Stat) {
		if s.PPID == pid {
			out = append(out, s.PID)
		}
	})
	return out
}

// ScanProcesses reads the stat of every process that can be seen. It costs
// some 10 µs for each: not for a hot path.
func ScanProcesses(f func(Stat)) {
	for _, pid := range numericEntries("/proc") {
		if s, err := ReadStat(pid); err == nil {
			f(s)
		}
	}
}

// ProcReadable reports whether /proc shows processes at all.
func ProcReadable() bool {
	_, err := ReadStat(os.Getpid())
	return err == nil
}

func numericEntries(dir string) []int {
	fd, err := openRetry(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var out []int
	var names []string
	buf := make([]byte, 8192)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return out
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, s := range names {
			if p, err := strconv.Atoi(s); err == nil {
				out = append(out, p)
			}
		}
	}
}
