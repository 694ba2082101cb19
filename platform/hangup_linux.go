package platform

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// WatchHangup watches for the end of who reads what is written to f: a pipe
// whose readers are gone, a socket whose other end is closed, a terminal that
// hung up. f may be blocking, and is left as it is. A regular file is refused
// with EPERM: it has no reader.
func WatchHangup(f *os.File) (*Watch, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", f.Name(), err)
	}
	// An epoll descriptor is readable when one in it is ready, epoll(7), so it
	// can wait in the netpoller where a blocking f cannot.
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", f.Name(), err)
	}
	var added error
	err = raw.Control(func(fd uintptr) { // EPOLLERR and EPOLLHUP are always told
		added = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{})
	})
	if err == nil {
		err = added
	}
	if err == nil {
		err = unix.SetNonblock(ep, true)
	}
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("watch %s: %w", f.Name(), err)
	}
	return watchReadable(os.NewFile(uintptr(ep), "hangup of "+f.Name()))
}
