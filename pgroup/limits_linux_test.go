package pgroup

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

func init() {
	helpers["levels"] = levels
	helpers["becomeroot"] = becomeRoot
	helpers["stoproot"] = stopRoot
}

// copied is the test binary where every user can execute it.
func copied(t *testing.T, perm uint32) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgroup")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "copy")
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	to.Close()
	if err := unix.Chmod(file, perm); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// nobody runs a helper as the user nobody and returns what it says.
func nobody(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(copied(t, 0o755))
	cmd.Args = append([]string{helperName}, args...)
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return string(out)
}

// levels says which level each wish comes to.
func levels(args []string) int {
	if len(args) > 0 {
		if err := refuseClone3(); err != nil {
			fmt.Println("seccomp:", err)
			return 0
		}
	}
	sub, err := BecomeSubreaper(true)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for _, x := range []struct {
		level Level
		sub   *Subreaper
	}{{Auto, sub}, {Auto, nil}, {Cgroup, sub}} {
		g, err := Start(Command{Path: "/bin/true", Args: []string{"true"}}, Config{Containment: x.level, Subreaper: x.sub, Token: fmt.Sprint("lv", os.Getpid())})
		if err != nil {
			fmt.Println("error", err.(*StartError).Step)
			continue
		}
		fmt.Println(g.Containment())
		if _, err := g.Reap(); err != nil {
			fmt.Println(err)
		}
	}
	if h, err := platform.FindCgroup(); err == nil {
		if _, err := os.Stat(fmt.Sprint(h.Base, "/procsup-lv", os.Getpid())); err == nil {
			fmt.Println("cgroup left")
		}
	}
	return 0
}

// refuseClone3 makes clone3(2) fail with ENOSYS, as older container runtimes do.
func refuseClone3() error {
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x00050000 | uint32(unix.ENOSYS)}, // SECCOMP_RET_ERRNO
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},                       // SECCOMP_RET_ALLOW
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	const setFilter, allThreads = 1, 1 // SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setFilter, allThreads, uintptr(unsafe.Pointer(&f))); errno != 0 {
		return errno
	}
	return nil
}

func TestNoCgroupFallsBackInAutoOnly(t *testing.T) {
	clean(t)
	t.Run("not delegated", func(t *testing.T) {
		needRoot(t)
		if got, want := nobody(t, "levels"), "tree\ngroup\nerror cgroup\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("clone3 refused", func(t *testing.T) {
		needCgroup(t)
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{helperName, "levels", "noclone3"}
		out, err := cmd.CombinedOutput()
		if strings.HasPrefix(string(out), "seccomp") {
			t.Skip(string(out))
		}
		if want := "tree\ngroup\nerror fork\n"; err != nil || string(out) != want {
			t.Errorf("got %q, %v, want %q", out, err, want)
		}
	})
}

// becomeRoot is the setuid copy: afterwards its starter may not signal it.
func becomeRoot([]string) int {
	if err := syscall.Setuid(0); err != nil {
		fmt.Println("not setuid:", err)
		return 1
	}
	fmt.Println("root", os.Getpid())
	unix.Pause()
	return 0
}

// stopRoot supervises, as nobody, a shell with two setuid members, one of them
// in a session of its own.
func stopRoot(args []string) int {
	sub, err := BecomeSubreaper(true)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	r, w, err := os.Pipe()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	script := fmt.Sprintf(`run='exec {$ARGV[0]} "%s", "becomeroot"'; perl -e "$run" %s & setsid perl -e "$run" %s & exec sleep 1000`, helperName, args[0], args[0])
	g, err := Start(Command{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ(), Stdout: w}, Config{Containment: Tree, Subreaper: sub})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	out := bufio.NewReader(r)
	for range 2 {
		line, _ := out.ReadString('\n')
		fmt.Print(line)
	}
	begin := time.Now()
	rep := g.Stop(Ladder{Grace: 100 * time.Millisecond, Settle: 100 * time.Millisecond}, nil)
	fmt.Println("took", time.Since(begin).Milliseconds())
	for _, m := range rep.Survivors {
		fmt.Printf("survivor %d %d %s\n", m.PID, m.StartTicks, m.Why)
	}
	fmt.Println("sent", strings.Join(sentTo(rep), ","))
	if end, err := g.Reap(); err != nil || end.Signal != syscall.SIGTERM {
		fmt.Println("reap", end, err)
	}
	return 0
}

func TestSurvivorsAreNamed(t *testing.T) {
	needRoot(t)
	clean(t)
	setuid := copied(t, 0o4755)
	out := nobody(t, "stoproot", setuid)
	if strings.Contains(out, "not setuid") {
		t.Skip(out)
	}
	var roots, survivors []int
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch n, _ := strconv.Atoi(f[1]); f[0] {
		case "root":
			roots = append(roots, n)
			_ = unix.Kill(n, unix.SIGKILL)
			await(t, n)
		case "survivor":
			survivors = append(survivors, n)
			if !strings.Contains(line, "operation not permitted") {
				t.Errorf("no reason: %s", line)
			}
		case "took":
			took(t, "stop", time.Duration(n)*time.Millisecond, 200*time.Millisecond, time.Second)
		case "sent":
			if f[1] != "TERM" || !strings.Contains(line, "TERM member refused") || !strings.Contains(line, "KILL member refused") {
				t.Error(line)
			}
		default:
			t.Error(line)
		}
	}
	slices.Sort(roots)
	slices.Sort(survivors)
	if len(roots) != 2 || !slices.Equal(roots, survivors) {
		t.Errorf("survivors %v, want %v:\n%s", survivors, roots, out)
	}
}
