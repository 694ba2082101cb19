package platform

import "golang.org/x/sys/unix"

// systemRandom asks getrandom(2), which gives up to 256 bytes at one stroke.
func systemRandom(p []byte) bool {
	n, err := unix.Getrandom(p, 0)
	return err == nil && n == len(p)
}
