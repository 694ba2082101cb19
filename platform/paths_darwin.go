package platform

import (
	"os"
	"strconv"
	"syscall"
)

const (
	maxSocketPath = 103 // sun_path has 104 bytes with the final NUL, unix(4)
	modesCount    = true
)

func homeDir() string { return os.Getenv("HOME") }

// sharedDir is fixed: with TMPDIR, client and daemon could miss each other.
func sharedDir() string { return "/tmp/procsup-" + strconv.Itoa(os.Geteuid()) }

func ownedByUs(fi os.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
