//go:build unix

package journal

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// A file system that cannot hold a journal is refused by name.
func TestS3_53_FileSystem(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, err := range map[string]error{"flock": fitFor("/tmp", broken, nil), "shared memory": fitFor("/tmp", nil, broken)} {
		if !errors.Is(err, ErrFileSystem) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), fsName("/tmp")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer a.Close()
	b, err := os.Open(a.Name())
	must(t, err)
	defer b.Close()
	if err := probeLock(a, b); err != nil {
		t.Errorf("a lock that works: %v", err)
	}
	other, err := os.CreateTemp(t.TempDir(), "") // stands for a lock that nobody sees
	must(t, err)
	defer other.Close()
	if err := probeLock(a, other); !errors.Is(err, errNoEffect) {
		t.Errorf("a lock without effect: %v", err)
	}
	must(t, a.Truncate(0))
	if err := probeMap(a, a); err != nil {
		t.Errorf("shared memory that works: %v", err)
	}
	must(t, other.Truncate(4096))
	rw, err := os.OpenFile(other.Name(), os.O_RDWR, 0)
	must(t, err)
	defer rw.Close()
	if err := probeMap(a, rw); !errors.Is(err, errNoEffect) {
		t.Errorf("memory that is not shared: %v", err)
	}
}

// S4-06: while one process after the other takes up the lock, the file always
// names somebody, whom a client waits for.
func TestLockAlwaysNamesSomebody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := Lock(dir)
	must(t, err)
	defer f.Close()
	must(t, os.WriteFile(f.Name(), []byte("1234567 of a version to come\nand more"), 0o600))
	if pid := LockedBy(dir); pid != 0 {
		t.Errorf("held by %d", pid)
	}
	must(t, NameHolder(dir))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 5000 {
			if err := LockAgain(f); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for n := 0; ; n++ {
		if pid := LockedBy(dir); pid != os.Getpid() {
			t.Fatalf("look %d: held by %d", n, pid)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
