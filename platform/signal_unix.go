//go:build unix

package platform

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const maxSignal = 64 // Linux: real-time signals go to 64, signal(7)

var signalNames = func() map[syscall.Signal]string {
	m := make(map[syscall.Signal]string, 40)
	for s := syscall.Signal(1); s < 32; s++ {
		if n := unix.SignalName(s); n != "" {
			m[s] = strings.TrimPrefix(n, "SIG")
		}
	}
	return m
}()
