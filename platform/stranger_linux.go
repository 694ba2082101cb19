package platform

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// AwaitStranger waits until a process that is not our child has ended, and says
// how if the kernel tells: see ExitOfZombie, and PIDFD_INFO_EXIT (Linux 6.15) once
// its parent has reaped it, for a pidfd that was opened before. It waits in the netpoller and
// returns early, unknown, when the file is closed.
func AwaitStranger(pidfd *os.File) (e Exit, known bool) {
	rc, err := pidfd.SyscallConn()
	if err != nil {
		return Exit{}, false
	}
	_ = rc.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(p, 0); n == 0 || err == unix.EINTR {
			return false
		}
		info, err := pidfdGetInfo(int(fd), unix.PIDFD_INFO_EXIT)
		if err == unix.ESRCH && p[0].Revents&unix.POLLHUP == 0 {
			return false
		}
		if err != nil { // an older kernel, or it was reaped before the pidfd was opened
			return true
		}
		if info.Mask&unix.PIDFD_INFO_EXIT == 0 {
			if e, known = ExitOfZombie(int(fd)); known {
				return true
			}
			return p[0].Revents&unix.POLLHUP != 0 // a zombie: its parent has still to reap it
		}
		known = true
		ws := syscall.WaitStatus(info.Exit_code)
		e = Exit{Code: ws.ExitStatus()}
		if ws.Signaled() {
			e = Exit{Code: -1, Signal: ws.Signal(), CoreDumped: ws.CoreDump()}
		}
		return true
	})
	return e, known
}
