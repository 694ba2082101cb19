package platform

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// PeekUsage is what a child that has ended used, and the children it waited
// for; it leaves the zombie as it is. waitid(2) fills a rusage on Linux, which
// its man page mentions only under VERSIONS.
func PeekUsage(pid int) (Usage, error) {
	var ru unix.Rusage
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, &ru)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
		}
		return Usage{User: time.Duration(ru.Utime.Nano()), System: time.Duration(ru.Stime.Nano()), MaxRSS: ru.Maxrss << 10}, nil
	}
}

// DiskSize is the size in bytes of the file system that holds a path.
func DiskSize(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("size of the file system of %s: %w", path, err)
	}
	return int64(st.Blocks) * st.Bsize, nil
}

// FDLimit is how many descriptors this process may have open, RLIMIT_NOFILE.
func FDLimit() (soft, hard uint64) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 1024, 1024
	}
	return l.Cur, l.Max
}

// RaiseFDLimit raises the soft limit to the hard one; children started later
// inherit it unless they are given old back.
func RaiseFDLimit() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil && l.Cur < l.Max {
		l.Cur = l.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
	}
}
