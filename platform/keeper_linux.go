package platform

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ExitAfterReap reports how the process behind a pidfd ended once its parent
// has reaped it, whoever that was (PIDFD_INFO_EXIT, Linux 6.15). false: not
// known, or not reaped yet.
func ExitAfterReap(pidfd int) (Exit, bool) {
	info, err := pidfdGetInfo(pidfd, unix.PIDFD_INFO_EXIT)
	if err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return Exit{}, false
	}
	ws := syscall.WaitStatus(info.Exit_code)
	if ws.Signaled() {
		return Exit{Code: -1, Signal: ws.Signal(), CoreDumped: ws.CoreDump()}, true
	}
	return Exit{Code: ws.ExitStatus()}, true
}

// ExitOfZombie is how the process behind a pidfd ended that is another's child
// and was not reaped yet: the last field of proc(5) stat. False when it has not
// ended or was reaped, when we may not inspect it, for the field is 0 then, and
// before Linux 6.13, where it could be that of the first thread alone.
func ExitOfZombie(pidfd int) (Exit, bool) {
	info, err := pidfdGetInfo(pidfd, unix.PIDFD_INFO_EXIT)
	if err != nil || info.Mask&unix.PIDFD_INFO_EXIT != 0 || info.Pid == 0 {
		return Exit{}, false
	}
	dir := "/proc/" + strconv.Itoa(int(info.Pid))
	b, err := readFile(dir+"/stat", make([]byte, 1024))
	if err != nil {
		return Exit{}, false
	}
	// A zombie executes nothing (ENOENT), which only who may inspect it is told.
	if _, err := os.Readlink(dir + "/exe"); !errors.Is(err, unix.ENOENT) {
		return Exit{}, false
	}
	// Not reaped meanwhile: the number was its own all the time.
	if info, err = pidfdGetInfo(pidfd, unix.PIDFD_INFO_EXIT); err != nil || info.Mask&unix.PIDFD_INFO_EXIT != 0 {
		return Exit{}, false
	}
	st, ok := parseStat(b)
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if !ok || st.State != 'Z' || st.Threads > 1 || len(f) < 50 {
		return Exit{}, false
	}
	code, err := strconv.Atoi(string(f[49]))
	return exitOf(unix.WaitStatus(code)), err == nil
}

// A Program names the file a process executes.
type Program struct{ dev, ino uint64 }

// ProgramOf is the file that a process executes, unlinked or not. It fails
// for a zombie, and for a process that this one may not inspect.
func ProgramOf(pid int) (Program, error) {
	var st unix.Stat_t
	for {
		err := unix.Stat("/proc/"+strconv.Itoa(pid)+"/exe", &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return Program{}, fmt.Errorf("program of process %d: %w", pid, err)
		}
		return Program{uint64(st.Dev), st.Ino}, nil
	}
}

// HoldsPipe reports whether one of the first three descriptors of a process is
// the pipe that fd is an end of.
func HoldsPipe(pid, fd int) bool {
	var ours, theirs unix.Stat_t
	if unix.Fstat(fd, &ours) != nil || ours.Mode&unix.S_IFMT != unix.S_IFIFO {
		return false
	}
	for n := range 3 {
		err := unix.Stat("/proc/"+strconv.Itoa(pid)+"/fd/"+strconv.Itoa(n), &theirs)
		if err == nil && theirs.Dev == ours.Dev && theirs.Ino == ours.Ino {
			return true
		}
	}
	return false
}

// SetName makes name, of at most 15 bytes, what ps and top call this process
// (proc(5) comm).
func SetName(name string) {
	self := "/proc/" + strconv.Itoa(os.Getpid()) + "/task"
	for _, tid := range numericEntries(self) {
		fd, err := openRetry(self+"/"+strconv.Itoa(tid)+"/comm", unix.O_WRONLY|unix.O_CLOEXEC)
		if err == nil {
			_, _ = unix.Write(fd, []byte(name))
			_ = unix.Close(fd)
		}
	}
	b := append([]byte(name), 0) // without /proc at least this thread
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
}

// NowTicks is the present as a start time, see Identity.StartTicks: what starts
// from now on has at least this.
func NowTicks() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano()) / 10_000_000 // USER_HZ is 100 on every Linux that Go runs on
}
