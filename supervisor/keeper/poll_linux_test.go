package keeper

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is ready is told although the time is over: a keeper that is late for
// its timers goes on hearing its supervisor.
func TestWaitAfterItsTime(t *testing.T) {
	p, err := newWaiter()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := p.add(fd, unix.EPOLLIN, tag{7, 8}); err != nil {
		t.Fatal(err)
	}
	if evs := p.wait(make([]unix.EpollEvent, 4), time.Now().Add(-time.Second)); len(evs) != 1 || evs[0].Fd != 7 {
		t.Errorf("events %v, want one", evs)
	}
}
