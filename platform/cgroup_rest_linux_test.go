package platform

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A cgroup at rest has no descriptor and yet tells all it told before.
func TestCgroupAtRest(t *testing.T) {
	c := newCgroup(t)
	cmd := into(c, exec.Command("sleep", "600"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.Rest()
	if c.dir >= 0 || c.events >= 0 {
		t.Errorf("descriptors %d and %d are open", c.dir, c.events)
	}
	wantPopulated(t, c, true)
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := c.WaitEmpty(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := c.Populated(); !errors.Is(err, ErrCgroupClosed) {
		t.Errorf("after Remove: %v", err)
	}
}

// While it rests nothing but the processes in it keeps a Sweep away.
func TestCgroupAtRestIsSwept(t *testing.T) {
	c := newCgroup(t)
	c.Rest()
	if err := unix.Rmdir(c.Path()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Populated(); !errors.Is(err, ErrGone) {
		t.Errorf("of a cgroup that was removed: %v", err)
	}
	if err := c.Remove(); err != nil {
		t.Error(err)
	}
}
