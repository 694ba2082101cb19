package platform

import "golang.org/x/sys/unix"

// Random fills p, at most 256 bytes, from the system's cryptographic generator
// (getrandom(2), Linux 3.17, which gives so many at one stroke).
func Random(p []byte) {
	for {
		n, err := unix.Getrandom(p, 0)
		if err == nil && n == len(p) {
			return
		}
		if err != nil && err != unix.EINTR {
			panic("getrandom: " + err.Error()) // no ids can be made without it
		}
	}
}
