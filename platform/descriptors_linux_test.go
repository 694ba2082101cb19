package platform

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A24: descriptors are counted without taking one, so that nothing else of this
// process, such as the Go runtime's poller, is refused meanwhile.
func TestA24_SpareFDs(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	const limit = 300 // more than one look
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
	free := limit
	for fd := range limit {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			free--
		}
	}
	if !spareFDs(free) || spareFDs(free+1) {
		t.Errorf("%d are free; it says of as many %v, of one more %v", free, spareFDs(free), spareFDs(free+1))
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if spareFDs(free) || NeedFDs(free) == nil {
		t.Errorf("%d can be opened after one more was", free)
	}
	f.Close()

	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			spareFDs(free)
		}
	}()
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
		}
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatalf("while it looks: %v", err)
		}
		unix.Close(fd)
	}
}
