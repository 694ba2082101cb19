package platform

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// ownCgroup makes a cgroup and says where, then hangs.
func ownCgroup(args []string) int {
	c, err := NewCgroup(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(c.Path())
	return hang(nil)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestSweepTakesOnlyStaleOnes(t *testing.T) {
	outer := newCgroup(t) // the runs are below it, so that no other test's are swept
	home := CgroupHome{Mount: "/", Self: outer.Path(), Base: outer.Path()}
	live, err := home.New("live")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	full, err := home.New("full")
	if err != nil {
		t.Fatal(err)
	}
	startReady(t, into(full, helperCmd(t, "hang")))
	full.Close()
	foreign := outer.Path() + "/somebody-else"
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	owner := into(outer, helperCmd(t, "own "+testName()))
	stale := startReady(t, owner)
	if n, err := home.Sweep(); n != 0 || err != nil {
		t.Errorf("swept %d, %v while all have owners", n, err)
	}
	if err := os.Mkdir(stale+"/procsup-inner", 0o755); err != nil { // a run inside the run
		t.Fatal(err)
	}
	owner.Process.Kill()
	owner.Wait()
	if n, err := home.Sweep(); n != 1 || err != nil {
		t.Errorf("swept %d, %v; want the one without owner", n, err)
	}
	for path, want := range map[string]bool{live.Path(): true, full.Path(): true, foreign: true, stale: false} {
		if exists(path) != want {
			t.Errorf("%s exists: %v, want %v", path, !want, want)
		}
	}
}

// A directory that was swept and made anew is not the one that was opened.
func TestLockLiveKnowsANewDirectory(t *testing.T) {
	outer := newCgroup(t)
	c, err := CgroupHome{Self: outer.Path(), Base: outer.Path()}.New("same")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := lockLive(c.dir, c.events, c.path); err != nil {
		t.Errorf("while it is there: %v", err)
	}
	if err := errors.Join(os.Remove(c.path), os.Mkdir(c.path, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := lockLive(c.dir, c.events, c.path); err != unix.ENOENT {
		t.Errorf("after it was made anew: %v", err)
	}
}

// Whatever the sweepers do, a cgroup that New returned is there.
func TestSweepRacesNew(t *testing.T) {
	outer := newCgroup(t)
	home := CgroupHome{Mount: "/", Self: outer.Path(), Base: outer.Path()}
	stop := make(chan struct{})
	var sweepers, makers sync.WaitGroup
	for range 2 {
		sweepers.Go(func() { // ends with stop; waited for below
			for {
				select {
				case <-stop:
					return
				default:
					home.Sweep()
				}
			}
		})
	}
	for m := range 2 {
		makers.Go(func() { // ends by itself; waited for below
			for i := range 200 {
				c, err := home.New(fmt.Sprint("r", m, "x", i))
				if errors.Is(err, unix.EAGAIN) {
					continue // thrice in a row: allowed, and said
				}
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := c.Populated(); err != nil {
					t.Error(err)
				}
				if err := c.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
	close(stop)
	sweepers.Wait()
}

// newAs is a procsup of an ordinary user: it makes a cgroup, runs in it, ends it.
func newAs([]string) int {
	c, err := NewCgroup("user")
	if err != nil {
		fmt.Println(errors.Is(err, unix.EACCES), err)
		return 0
	}
	cmd := into(c, exec.Command("/proc/self/exe"))
	cmd.Env = append(os.Environ(), helperEnv+"=hang")
	cmd.Stdin = os.Stdin
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	err = errors.Join(c.Kill(), cmd.Wait(), c.Remove())
	fmt.Println(strconv.Quote(err.Error()))
	return 0
}

func TestCgroupAsUser(t *testing.T) {
	needRoot(t)
	const uid = 65432
	for name, delegated := range map[string]bool{"delegated": true, "not delegated": false} {
		t.Run(name, func(t *testing.T) {
			c := newCgroup(t)
			if delegated {
				for _, f := range []string{"", "/cgroup.procs", "/cgroup.subtree_control"} { // cgroups(7), delegation
					if err := os.Chown(c.Path()+f, uid, uid); err != nil {
						t.Fatal(err)
					}
				}
			}
			cmd := into(c, helperCmd(t, "newas"))
			cmd.Path = worldReadableSelf(t)
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
			got := startReady(t, cmd)
			want := `"signal: killed"`
			if !delegated {
				want = "true create cgroup "
			}
			if !strings.HasPrefix(got, want) || !delegated && !strings.Contains(got, "not delegated") {
				t.Errorf("said %s, want %s", got, want)
			}
		})
	}
}

// worldReadableSelf is a copy of the test binary that other users may execute:
// go test builds it in a folder of mode 0700.
func worldReadableSelf(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "procsup-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	path := dir + "/self"
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, b, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}
