package platform

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// How a process ended is told before its parent has reaped it, and not before
// it has ended nor afterwards.
func TestExitOfZombie(t *testing.T) {
	for script, want := range map[string]Exit{
		"exit 0":        {},
		"exit 7":        {Code: 7},
		"kill -KILL $$": {Code: -1, Signal: syscall.SIGKILL},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command("/bin/sh", "-c", "read x; "+script)
		c.Stdin = r
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		r.Close()
		fd, err := OpenPidfd(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if _, err := pidfdGetInfo(fd, unix.PIDFD_INFO_EXIT); err != nil {
			t.Skip("PIDFD_GET_INFO needs Linux 6.13")
		}
		if e, ok := ExitOfZombie(fd); ok {
			t.Errorf("%s: %+v while it lives", script, e)
		}
		w.Close()
		if _, err := AwaitExit(c.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if e, ok := ExitOfZombie(fd); !ok || e != want {
			t.Errorf("%s: %+v, %v, want %+v", script, e, ok, want)
		}
		_ = c.Wait()
		if e, ok := ExitOfZombie(fd); ok {
			t.Errorf("%s: %+v when it was reaped", script, e)
		}
	}
}
