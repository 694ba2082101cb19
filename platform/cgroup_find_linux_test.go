package platform

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCgroup2Mount(t *testing.T) {
	for line, want := range map[string]string{
		"41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw": "/ /sys/fs/cgroup",
		`41 31 0:38 /a\040b /mnt/x\134y rw - cgroup2 cgroup2 rw`:                `/a b /mnt/x\y`,
		"41 31 0:38 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu":             "",
		"41 - cgroup2 ": "",
	} {
		got := ""
		if root, mount, ok := cgroup2Mount([]byte(line)); ok {
			got = root + " " + mount
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestSelfBelow(t *testing.T) {
	for name, tt := range map[string]struct{ mount, root, path, want string }{
		"host":                  {"/m", "/", "/a/b", "/m/a/b"},
		"root cgroup":           {"/m", "/", "/", "/m"},
		"mounted at the root":   {"/", "/", "/a", "/a"},
		"container, bind mount": {"/m", "/docker/x", "/docker/x/y", "/m/y"},
		"exactly the root":      {"/m", "/docker/x", "/docker/x", "/m"},
		"a name that begins so": {"/m", "/docker/x", "/docker/xy", ""},
		"outside the mount":     {"/m", "/docker/x", "/a", ""},
		"outside the namespace": {"/m", "/", "/../a", ""},
		"both outside":          {"/m", "/..", "/../a", "/m/a"},
		"further outside":       {"/m", "/..", "/../../a", ""},
	} {
		if got, ok := selfBelow(tt.mount, tt.root, tt.path); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q %v, want %q", name, got, ok, tt.want)
		}
	}
}

// The short way by the cgroup's id and the long one by mountinfo must agree.
func TestFindCgroupBothWays(t *testing.T) {
	h, err := FindCgroup()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	slow, fast := CgroupHome{Path: h.Path}, CgroupHome{Path: h.Path}
	if err := slow.locateByMounts(); err != nil || slow.Self != h.Self {
		t.Errorf("by mountinfo: %+v, %v; want %s", slow, err, h.Self)
	}
	if fast.locateUsual() && fast != slow {
		t.Errorf("by id %+v, by mountinfo %+v", fast, slow)
	}
	wrong := CgroupHome{Path: h.Path + "/no-such-cgroup"}
	if wrong.locateUsual() {
		t.Errorf("a cgroup that is not ours was taken: %+v", wrong)
	}
}

// otherMount runs in mount and cgroup namespaces of its own: it says what is
// found with cgroup2 at its usual place, moved elsewhere, and not mounted.
func otherMount(args []string) int {
	say := func(h CgroupHome, err error) {
		fmt.Println(h.Self, h.Writable, h.Reason, errors.Is(err, errors.ErrUnsupported))
	}
	say(FindCgroup())
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fail(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	fail(unix.Mount("none", "/sys/fs/cgroup", "tmpfs", 0, "")) // hides what is there
	say(FindCgroup())
	fail(unix.Mount("none", args[0], "cgroup2", 0, ""))
	say(FindCgroup())
	fail(unix.Mount("", args[0], "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	say(FindCgroup())
	_, err := NewCgroup("ro")
	fmt.Println(errors.Is(err, unix.EROFS), err != nil && strings.Contains(err.Error(), "read-only"))
	return 0
}

func TestFindCgroupInNamespaces(t *testing.T) {
	needRoot(t)
	c := newCgroup(t)
	dir := t.TempDir()
	cmd := helperCmd(t, "mounts "+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP, UseCgroupFD: true, CgroupFD: c.FD(),
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := strings.Join([]string{
		" false  true", // the old mount shows cgroups above our namespace's root only
		" false  true", // nothing mounted
		dir + " true  false",
		dir + " false " + dir + " is on a read-only mount false",
		"true true",
	}, "\n") + "\n"
	if string(out) != want {
		t.Errorf("found\n%s\nwant\n%s", out, want)
	}
}
