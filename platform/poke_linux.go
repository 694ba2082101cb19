package platform

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// PokeNamed sends USR1 to a process if it has the given name (proc(5) comm) and
// runs as this user.
func PokeNamed(pid int, name string) error {
	fd, err := OpenPidfd(pid)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st, err := ReadStat(pid)
	if err != nil {
		return err
	}
	var owner unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &owner); err != nil {
		return err
	}
	if st.Comm != name || int(owner.Uid) != unix.Getuid() {
		return fmt.Errorf("process %d is %s, not %s: %w", pid, st.Comm, name, ErrGone)
	}
	return SignalPidfd(fd, unix.SIGUSR1)
}
