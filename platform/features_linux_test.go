package platform

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// examined is what an examine helper tells.
type examined struct {
	Report        Report
	Before, After string // leftovers
	Cgroup        bool   // the probe's cgroup is still there
}

// examineHelper probes, with system calls refused by errno args[0] unless it is
// 0, and prints what came of it.
func examineHelper(args []string) int {
	cfg := ProbeConfig{Dir: args[1], Helper: []string{"/proc/self/exe", "-test.run=^$"}}
	if args[1] == "nohelper" {
		cfg.Helper = nil
	}
	os.Unsetenv(helperEnv)
	var errno uint32
	fmt.Sscan(args[0], &errno)
	e := examined{Before: leftovers()}
	if errno != 0 {
		if err := refuse(errno, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_CLONE3, unix.SYS_CLOSE_RANGE, unix.SYS_SPLICE); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	e.Report = Examine(cfg)
	e.After = leftovers()
	if h, err := FindCgroup(); err == nil {
		e.Cgroup = exists(fmt.Sprintf("%s/procsup-doctor-%d", h.Base, os.Getpid()))
	}
	if err := json.NewEncoder(os.Stdout).Encode(e); err != nil {
		return 1
	}
	return 0
}

// refuse makes system calls fail for all threads, as a container's seccomp
// profile does (seccomp(2)).
func refuse(errno uint32, calls ...uint32) error {
	const load, jumpEqual, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	prog := []unix.SockFilter{{Code: load, K: 0}} // offset of seccomp_data.nr
	for _, nr := range calls {
		prog = append(prog,
			unix.SockFilter{Code: jumpEqual, K: nr, Jf: 1},
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | errno})
	}
	prog = append(prog, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f)))
	if e != 0 {
		return e
	}
	return nil
}

// runExamine runs an examine helper and checks that it left nothing.
func runExamine(t *testing.T, errno int, dir string, cred *syscall.Credential) Report {
	t.Helper()
	cmd := helperCmd(t, fmt.Sprintf("examine %d %s", errno, dir))
	if cred != nil {
		cmd.Path = worldReadableSelf(t)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var e examined
	if err := json.Unmarshal(out, &e); err != nil {
		t.Fatal(err)
	}
	if e.Before != e.After || e.Cgroup {
		t.Errorf("left behind: cgroup %v\n%s\nbefore:\n%s", e.Cgroup, e.After, e.Before)
	}
	return e.Report
}

func wantFeatures(t *testing.T, r Report, want map[string]bool) {
	t.Helper()
	for name, ok := range want {
		f := r.Feature(name)
		if f.Name == "" || f.OK != ok || f.Detail == "" {
			t.Errorf("%s: %+v, want ok %v with a detail", name, f, ok)
		}
	}
}

func TestExamine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := runExamine(t, 0, dir+"/not/there/yet", nil)
	if !r.Usable || !r.Capabilities.GroupKill || !r.Capabilities.TreeKill || r.Why == "" {
		t.Errorf("report %+v", r)
	}
	wantFeatures(t, r, map[string]bool{
		"pidfd_open": true, "pidfd_send_signal": true, "waitid_nowait": true, "subreaper": true, "proc": true,
		"splice": true, "user": true, "pid": true, "core": true, "peer_credentials": true,
	})
	home, err := FindCgroup()
	if want := err == nil && home.Writable; r.Capabilities.CgroupKill != want || (r.Containment == ByCgroup) != want {
		t.Errorf("containment %s, cgroup_kill %v; writable %v, %v", r.Containment, r.Capabilities.CgroupKill, home.Writable, err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("files left: %v", left)
	}
}

func TestExamineAsUser(t *testing.T) {
	needRoot(t)
	r := runExamine(t, 0, "/tmp", &syscall.Credential{Uid: 65432, Gid: 65432})
	if r.Containment != ByTree || !r.Usable || len(r.Better) == 0 || !strings.Contains(r.Why, "cgroup") {
		t.Errorf("report %+v, want tree, why, and how to get better", r)
	}
	wantFeatures(t, r, map[string]bool{"user": true, "waitid_nowait": true})
	r = runExamine(t, 0, "/tmp", &syscall.Credential{Uid: 65534, Gid: 65534})
	wantFeatures(t, r, map[string]bool{"user": false})
}

// Under a seccomp filter each refusal is told, and the rest is still probed.
func TestExamineRefused(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{unix.EPERM, unix.ENOSYS} {
		r := runExamine(t, int(errno), t.TempDir(), nil)
		if r.Usable || len(r.Problems) != 1 || r.Containment != ByTree || r.Capabilities.CrashSafe {
			t.Errorf("%v: report %+v, want unusable for want of pidfd_open", errno, r)
		}
		wantFeatures(t, r, map[string]bool{
			"pidfd_open": false, "close_range": false, "splice": false, "hole_punching": true, "subreaper": true, "proc": true,
		})
		if home, err := FindCgroup(); err == nil && home.Writable {
			wantFeatures(t, r, map[string]bool{"cgroup_clone": false})
		}
	}
}

func TestExamineWithoutHelper(t *testing.T) {
	t.Parallel()
	r := runExamine(t, 0, "nohelper", nil)
	wantFeatures(t, r, map[string]bool{"pidfd_open": true, "waitid_nowait": false})
	if !r.Usable || r.Containment == ByCgroup {
		t.Errorf("report %+v: what was not tried is not claimed", r)
	}
}

func TestContain(t *testing.T) {
	t.Parallel()
	all := []string{"cgroup2", "cgroup_writable", "cgroup_clone", "cgroup_kill", "cgroup_events", "subreaper", "proc"}
	for missing, want := range map[string]Containment{
		"": ByCgroup, "cgroup2": ByTree, "cgroup_writable": ByTree, "cgroup_clone": ByTree,
		"cgroup_events": ByTree, "cgroup2 subreaper": ByGroup, "cgroup_kill proc": ByGroup,
	} {
		var r Report
		for _, name := range all {
			err := error(nil)
			if strings.Contains(" "+missing+" ", " "+name+" ") {
				err = errors.New("no such luck")
			}
			r.Features = append(r.Features, feature(name, err, "fine", "get it"))
		}
		r.contain(CgroupHome{})
		told := strings.Contains(r.Why, "no such luck")
		if r.Containment != want || (len(r.Better) > 0) != (missing != "") || told != (missing != "") {
			t.Errorf("without %q: %s because %q, better %q; want %s", missing, r.Containment, r.Why, r.Better, want)
		}
	}
}
