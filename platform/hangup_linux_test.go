package platform

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// blockingPair is a socket pair of blocking descriptors, as a client that is
// written in JavaScript gives for standard streams.
func blockingPair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(p[0]), "ours"), os.NewFile(uintptr(p[1]), "theirs")
}

func TestWatchHangup(t *testing.T) {
	pair := map[string]func(*testing.T) (ours, theirs *os.File){
		"pipe": func(t *testing.T) (*os.File, *os.File) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			return w, r
		},
		"socket": blockingPair,
	}
	for name, make := range pair {
		t.Run(name, func(t *testing.T) {
			ours, theirs := make(t)
			defer ours.Close()
			w, err := WatchHangup(ours)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			select {
			case <-w.Done():
				t.Fatal("done while there is a reader")
			default:
			}
			if _, err := ours.WriteString("x"); err != nil { // unread bytes are no hangup
				t.Fatal(err)
			}
			theirs.Close()
			select {
			case <-w.Done():
			case <-time.After(time.Minute):
				t.Fatal("not done though nobody reads any more")
			}
		})
	}
}

func TestWatchHangupOfFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := WatchHangup(f); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a file has no reader: %v", err)
	}
}
