package keeper

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// nameKeeper and nameSupervisor are what ps shows, at most 15 bytes.
const (
	nameKeeper     = "procsup-keep"
	nameSupervisor = "procsupd"
)

// Poke makes a keeper that waits after a crash loop try again at once. lock is
// the path of its lock file, whose text begins with its process number; a
// process of that number that is no keeper is left alone (os.ErrNotExist).
func Poke(lock string) error {
	b, err := os.ReadFile(lock)
	if err != nil {
		return fmt.Errorf("poke keeper: %w", err)
	}
	f := strings.Fields(string(b))
	if len(f) == 0 {
		return fmt.Errorf("poke keeper: no process in its lock: %w", os.ErrNotExist)
	}
	pid, err := strconv.Atoi(f[0])
	if err != nil || pid <= 1 {
		return fmt.Errorf("poke keeper %.20q: %w", f[0], os.ErrInvalid)
	}
	fd, err := platform.OpenPidfd(pid)
	if err != nil {
		return fmt.Errorf("poke keeper: %w", err)
	}
	defer unix.Close(fd)
	if st, err := platform.ReadStat(pid); err != nil || st.Comm != nameKeeper {
		return fmt.Errorf("poke keeper: process %d is none: %w", pid, os.ErrNotExist)
	}
	return platform.SignalPidfd(fd, unix.SIGUSR1)
}
