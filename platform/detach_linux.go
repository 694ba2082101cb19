package platform

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// StartDetached starts a program that has nothing of us but our user: a
// session of its own, / as directory, /dev/null as its three streams, ready as
// descriptor 3 and no other. If we run in a cgroup that procsup made it is
// started outside of that, or not at all: the end of a run must not end it.
func StartDetached(path string, argv, env []string, ready *os.File) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	sys := &syscall.SysProcAttr{Setsid: true}
	if home, err := FindCgroup(); err == nil && home.Outside() != home.Self {
		fd, err := unix.Open(home.Outside(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("leave the cgroup of the run we are in for %s: %w", home.Outside(), err)
		}
		defer unix.Close(fd)
		sys.UseCgroupFD, sys.CgroupFD = true, fd
	}
	for _, fd := range InheritedFDs() { // what the caller left open for us is not for it
		SetCloexec(fd)
	}
	p, err := os.StartProcess(path, argv, &os.ProcAttr{
		Dir: "/", Env: env, Files: []*os.File{null, null, null, ready}, Sys: sys,
	})
	if err != nil && sys.UseCgroupFD {
		err = fmt.Errorf("%w (outside of the cgroup of the run we are in, which would end it)", err)
	}
	return p, err
}
