package platform

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// probeSubreaper sets the flag to what it is: nothing changes.
func probeSubreaper() Feature {
	var on int32
	err := getSubreaper(&on)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(on), 0, 0, 0)
	}
	return feature("subreaper", err, "orphans of a run come to procsup", "a seccomp profile that allows prctl")
}

// probeProc reads a process of another user, which hidepid takes away.
func probeProc() Feature {
	const name, hint = "proc", "mount proc on /proc, without hidepid or with gid="
	var fs unix.Statfs_t
	if err := unix.Statfs("/proc", &fs); err != nil {
		return feature(name, err, "", hint)
	}
	if fs.Type != unix.PROC_SUPER_MAGIC {
		return feature(name, errors.New("/proc is not a proc file system"), "", hint)
	}
	if _, err := ReadStat(os.Getpid()); err != nil {
		return feature(name, err, "", hint)
	}
	detail := "processes can be read"
	if _, err := ReadStat(1); err != nil {
		detail = "only our own user's processes can be read (hidepid)"
	}
	return Feature{Name: name, OK: true, Detail: detail}
}

// probeChildrenFiles reads our own list of children, CONFIG_PROC_CHILDREN.
func probeChildrenFiles() Feature {
	_, err := readFile("/proc/self/task/"+strconv.Itoa(os.Getpid())+"/children", make([]byte, 512))
	return feature("proc_children", err, "the tree of a run is read without a scan", "a kernel with CONFIG_PROC_CHILDREN; without it all of /proc is scanned")
}

// probeCloseRange closes a descriptor of its own.
func probeCloseRange() Feature {
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3)
	if err == unix.EBADF { // stdin is closed
		fd, err = unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		if err = unix.CloseRange(uint(fd), uint(fd), 0); err != nil {
			unix.Close(fd)
		}
	}
	return feature("close_range", err, "descriptors are closed in one call", "Linux 5.9")
}

// probeNofile reads the limit. Go raises the soft one to the hard one in each
// program it builds and gives children the former value back.
func probeNofile() Feature {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return feature("nofile", err, "", "")
	}
	const few = 4096
	runs := max(0, (int64(min(lim.Max, 1<<20))-500)/3) // three descriptors a run, 500 in reserve
	f := Feature{Name: "nofile", OK: lim.Max >= few}
	f.Detail = fmt.Sprintf("soft %s, hard %s: some %d captured runs at once", limit(lim.Cur), limit(lim.Max), runs)
	if !f.OK {
		f.Hint = "raise the hard limit: ulimit -Hn, LimitNOFILE= in the unit"
	}
	return f
}

func limit(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}

// probePipeSize grows a pipe of its own as a busy stream does.
func probePipeSize() Feature {
	const want = 1 << 20
	var p [2]int
	err := unix.Pipe2(p[:], unix.O_CLOEXEC)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, want)
		unix.Close(p[0])
		unix.Close(p[1])
	}
	limits := "pipe-max-size " + orUnknown(readLine("/proc/sys/fs/pipe-max-size")) +
		" bytes, pipe-user-pages-soft " + orUnknown(readLine("/proc/sys/fs/pipe-user-pages-soft")) + " pages"
	f := feature("pipe_size", err, "a busy pipe grows to 1 MiB; "+limits, "raise /proc/sys/fs/pipe-max-size and pipe-user-pages-soft; capture works without, slower")
	if err != nil {
		f.Detail += "; " + limits
	}
	return f
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// probeFiles tries capture's calls on an unnamed file in dir.
func probeFiles(dir string) []Feature {
	for dir != "/" && dir != "." && unix.Access(dir, unix.F_OK) != nil {
		dir = filepath.Dir(dir)
	}
	file, err := unnamedFile(dir)
	if err != nil {
		err = fmt.Errorf("no file can be made in %s: %w", dir, err)
		const hint = "give a state folder that can be written: --state or PROCSUP_STATE"
		return []Feature{feature("splice", err, "", hint), feature("hole_punching", err, "", hint)}
	}
	defer file.Close()
	fd := int(file.Fd())
	spliced := feature("splice", trySplice(fd), "output goes from pipe to file inside the kernel", "capture copies instead: a byte may be lost when the supervisor is killed")
	err = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1)
	hole := feature("hole_punching", err, "the middle of a long output can be given back (in "+dir+")", "segment files are used instead; ext4, xfs, btrfs and tmpfs can do it")
	return []Feature{spliced, hole}
}

// unnamedFile makes a file that is gone with its descriptor (O_TMPFILE where
// the file system has it).
func unnamedFile(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), dir), nil
	}
	if err != unix.EOPNOTSUPP && err != unix.EISDIR && err != unix.EINVAL {
		return nil, err
	}
	file, err := os.CreateTemp(dir, ".procsup-doctor-")
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}

func trySplice(file int) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	if _, err := unix.Write(p[1], []byte("x")); err != nil {
		return err
	}
	n, err := unix.Splice(p[0], nil, file, nil, 1, 0)
	if err == nil && n != 1 {
		err = fmt.Errorf("spliced %d bytes of 1", n)
	}
	return err
}

// probePeer asks who we are on a socket pair of our own.
func probePeer() []Feature {
	s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return []Feature{feature("peer_credentials", err, "", "")}
	}
	defer unix.Close(s[0])
	defer unix.Close(s[1])
	c, err := unix.GetsockoptUcred(s[0], unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == nil && int(c.Uid) != os.Geteuid() {
		err = fmt.Errorf("our own peer has uid %d", c.Uid)
	}
	cred := feature("peer_credentials", err, "the daemon knows the user who connects", "")
	fd, err := unix.GetsockoptInt(s[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err == nil {
		unix.Close(fd)
	} else if err == unix.ENOPROTOOPT {
		err = errors.New("not in this kernel: a session is bound to a process by its number and start time")
	}
	return []Feature{cred, feature("peer_pidfd", err, "a session can be bound to the process that connects", "Linux 6.5")}
}

func probePID() Feature {
	f := Feature{Name: "pid", OK: true, Detail: fmt.Sprintf("process %d, not PID 1", os.Getpid())}
	if os.Getpid() == 1 {
		f.Detail = "PID 1: signals are passed on and orphans reaped"
	}
	return f
}

// probeUser refuses the overflow uid, which every unmapped user has
// (user_namespaces(7)): all of them would look like the daemon's own.
func probeUser() Feature {
	f := Feature{Name: "user", OK: true, Detail: fmt.Sprintf("uid %d", os.Geteuid())}
	if m := strings.Fields(readLine("/proc/self/uid_map")); len(m) == 3 && (m[0] != "0" || m[1] != "0" || m[2] != "4294967295") {
		f.Detail += ", in a user namespace"
	}
	if overflow := readLine("/proc/sys/kernel/overflowuid"); overflow == strconv.Itoa(os.Geteuid()) {
		f.OK = false
		f.Detail += ", the overflow uid: the daemon refuses to serve, as any unmapped user has it"
		f.Hint = "run as a user that is mapped in this namespace"
	}
	return f
}

func probeCore() Feature {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &lim); err != nil {
		return feature("core", err, "", "")
	}
	detail := "soft limit " + limit(lim.Cur) + ", pattern " + orUnknown(readLine("/proc/sys/kernel/core_pattern")) + "; procsup itself never dumps"
	return Feature{Name: "core", OK: true, Detail: detail}
}
