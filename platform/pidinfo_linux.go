package platform

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// pidfdGetInfo asks for facts about the process behind a pidfd (ioctl
// PIDFD_GET_INFO, Linux 6.13; PIDFD_INFO_EXIT 6.15). The answer's Mask says
// which were given: the exit code only once the process was reaped, before that
// the bit is missing and the field 0.
func pidfdGetInfo(pidfd int, want uint64) (unix.PidfdInfo, error) {
	const getInfo = 0xc058ff0b // _IOWR(0xff, 11, struct pidfd_info) of 88 bytes; the kernel takes any size from 64
	info := unix.PidfdInfo{Mask: want}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), getInfo, uintptr(unsafe.Pointer(&info)))
	if errno != 0 {
		return info, errno
	}
	return info, nil
}

// getSubreaper stores the flag of this process in on (prctl(2)).
func getSubreaper(on *int32) error {
	_, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(on)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
