package platform

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// FindCgroup finds the cgroup v2 directory of this process, wherever cgroup2 is
// mounted (hybrid hosts, containers, cgroup namespaces: cgroups(7)). It reads
// /proc/self/cgroup, and /proc/self/mountinfo only where the mount is at no
// usual place or the kernel is older than 6.13. The error wraps errors.ErrUnsupported when there is none.
func FindCgroup() (CgroupHome, error) {
	var h CgroupHome
	var found bool
	err := eachLine("/proc/self/cgroup", func(line []byte) bool {
		var path []byte
		path, found = bytes.CutPrefix(line, []byte("0::"))
		h.Path = string(path)
		return !found
	})
	if err != nil {
		return h, noCgroup(err.Error())
	}
	if !found || strings.HasSuffix(h.Path, " (deleted)") {
		return h, noCgroup("this process is in none")
	}
	if err := h.locate(); err != nil {
		return h, err
	}
	h.Reason = cgroupReason(h.Base)
	h.Writable = h.Reason == ""
	return h, nil
}

// locate finds the directory of h.Path.
func (h *CgroupHome) locate() error {
	if h.locateUsual() {
		return nil
	}
	return h.locateByMounts()
}

func (h *CgroupHome) locateByMounts() error {
	mounted := false
	err := eachLine("/proc/self/mountinfo", func(line []byte) bool {
		root, mount, ok := cgroup2Mount(line)
		if !ok {
			return true
		}
		mounted = true
		self, ok := selfBelow(mount, root, h.Path)
		if !ok || !isCgroup2(self) {
			return true
		}
		h.Mount, h.Root, h.Self, h.Base = mount, root, self, self
		return false
	})
	switch {
	case err != nil:
		return noCgroup(err.Error())
	case !mounted:
		return noCgroup("no cgroup2 file system is mounted")
	case h.Self == "":
		return noCgroup("our own cgroup " + h.Path + " is outside of what is mounted here")
	}
	return nil
}

// locateUsual tries the places where systemd mounts cgroup2. A directory is
// ours for sure when its inode is our cgroup's id (PIDFD_INFO_CGROUPID, Linux
// 6.13): that spares mountinfo, which the kernel takes 30 µs or more to write.
func (h *CgroupHome) locateUsual() bool {
	pidfd, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err != nil {
		return false
	}
	defer unix.Close(pidfd)
	info, err := pidfdGetInfo(pidfd, unix.PIDFD_INFO_CGROUPID)
	if err != nil || info.Mask&unix.PIDFD_INFO_CGROUPID == 0 {
		return false
	}
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		self, ok := selfBelow(mount, "/", h.Path)
		if !ok {
			return false
		}
		var st unix.Stat_t
		if unix.Stat(self, &st) == nil && st.Ino == info.Cgroupid && isCgroup2(self) {
			h.Mount, h.Root, h.Self, h.Base = mount, "/", self, self
			return true
		}
	}
	return false
}

func noCgroup(why string) error {
	return fmt.Errorf("cgroup v2: %s: %w", why, errors.ErrUnsupported)
}

// cgroupReason says why dir cannot take a cgroup with a process of ours, "" if
// it can. Cloning into a child of our own cgroup needs write access to the
// directory and to cgroup.procs of the common ancestor, which is dir itself.
func cgroupReason(dir string) string {
	for _, path := range []string{dir, dir + "/cgroup.procs"} {
		switch err := unix.Access(path, unix.W_OK); err {
		case nil:
		case unix.EROFS:
			return path + " is on a read-only mount"
		case unix.EACCES, unix.EPERM:
			return path + " may not be written by this user: it is not delegated"
		default:
			return path + ": " + err.Error()
		}
	}
	return ""
}

func isCgroup2(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

// cgroup2Mount takes root and mount point from a mountinfo line, proc(5):
// id parent major:minor ROOT MOUNT options [tags] - TYPE source superoptions.
func cgroup2Mount(line []byte) (root, mount string, ok bool) {
	if !bytes.Contains(line, []byte(" - cgroup2 ")) {
		return "", "", false
	}
	f := bytes.SplitN(line, []byte{' '}, 6)
	if len(f) < 6 {
		return "", "", false
	}
	return unescapeMount(f[3]), unescapeMount(f[4]), true
}

// unescapeMount undoes the octal escapes of blank, tab, newline and backslash.
func unescapeMount(s []byte) string {
	if bytes.IndexByte(s, '\\') < 0 {
		return string(s)
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			out = append(out, (s[i+1]-'0')<<6|(s[i+2]-'0')<<3|(s[i+3]-'0'))
			i += 3
			continue
		}
		out = append(out, s[i])
	}
	return string(out)
}

// selfBelow turns the path of a cgroup into a directory below a mount that
// shows the hierarchy from root on. Paths that climb out of the cgroup
// namespace ("/../x", cgroup_namespaces(7)) are reachable only when root
// climbs the same way.
func selfBelow(mount, root, path string) (string, bool) {
	rel := path
	if root != "/" {
		var ok bool
		if rel, ok = strings.CutPrefix(path, root); !ok || rel != "" && rel[0] != '/' {
			return "", false
		}
	}
	if strings.HasPrefix(rel, "/..") {
		return "", false
	}
	return strings.TrimSuffix(mount, "/") + strings.TrimSuffix(rel, "/"), true
}

// eachLine gives the lines of a /proc file to f until f returns false. It reads
// piecewise, as the kernel makes the text while it is read: what lies behind
// the wanted line costs nothing.
func eachLine(path string, f func(line []byte) bool) error {
	fd, err := openRetry(path, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 0, 4096)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if n == 0 {
			if len(buf) > 0 {
				f(buf)
			}
			return nil
		}
		buf = buf[:len(buf)+n]
		rest := buf
		for {
			line, tail, ok := bytes.Cut(rest, []byte{'\n'})
			if !ok {
				break
			}
			if !f(line) {
				return nil
			}
			rest = tail
		}
		buf = buf[:copy(buf, rest)]
	}
}
