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
	helpers["reuse"] = reuse
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

// reuse runs as PID 1 of a pid namespace, where numbers can be chosen, and says
// what went wrong.
func reuse(args []string) int {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		fmt.Println("skip", err)
		return 0
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		fmt.Println("skip", err)
		return 0
	}
	if args[0] == "remote" {
		return reused()
	}
	for range 20 { // a thread of ours may get the number instead
		if stolen() {
			return 0
		}
	}
	fmt.Println("skip no reuse")
	return 0
}

// reused gives the number of a command that its parent has reaped to a stranger.
func reused() int {
	sleep := func() *exec.Cmd {
		c := exec.Command("/bin/sleep", "1000")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			fmt.Println(err)
		}
		return c
	}
	first := sleep()
	pid := first.Process.Pid
	old, err := platform.ReadStat(pid)
	pidfd, err2 := platform.OpenPidfd(pid)
	if err != nil || err2 != nil {
		fmt.Println(err, err2)
		return 1
	}
	w := newWatch(nil)
	w.add(old)
	first.Process.Kill()
	first.Wait()
	time.Sleep(20 * time.Millisecond) // a start tick is 10 ms: two processes never share number and tick
	if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
		fmt.Println("skip", err)
		return 0
	}
	stranger := sleep()
	if stranger.Process.Pid != pid {
		fmt.Println("skip no reuse:", stranger.Process.Pid, pid)
		return 0
	}
	friend := exec.Command("/bin/sleep", "1000") // in the stranger's group
	friend.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: pid}
	if err := friend.Start(); err != nil {
		fmt.Println(err)
	}
	strangerSurvives(old, pidfd, w)
	if !alive(pid) || !alive(friend.Process.Pid) {
		fmt.Println("the stranger was ended:", alive(pid), alive(friend.Process.Pid))
	}
	friend.Process.Kill()
	friend.Wait()
	stranger.Process.Kill()
	if err := stranger.Wait(); err == nil || err.Error() != "signal: killed" {
		fmt.Println("the stranger was reaped:", err)
	}
	return 0
}

// stolen is reuse for a command of ours whose leader the host reaped; false if
// the number was not given again.
func stolen() bool {
	g, err := Start(Command{Path: "/bin/true", Args: []string{"true"}}, Config{Containment: Grp})
	if err != nil {
		fmt.Println(err)
		return true
	}
	<-g.Done()
	_, _ = unix.Wait4(g.PID(), nil, 0, nil)
	if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(g.PID()-1)), 0); err != nil {
		fmt.Println("skip", err)
		return true
	}
	stranger := exec.Command("/bin/sleep", "1000")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := stranger.Start(); err != nil {
		fmt.Println(err)
		return true
	}
	hit := stranger.Process.Pid == g.PID()
	if hit {
		_ = g.Signal(syscall.SIGKILL)
		_ = g.SignalLeader(syscall.SIGKILL)
		g.Stop(Ladder{Grace: -1}, nil)
	}
	if _, err := g.Reap(); err != nil {
		fmt.Println("reap:", err) // the exit was seen before
	}
	if !alive(stranger.Process.Pid) {
		fmt.Println("the stranger was ended")
	}
	stranger.Process.Kill()
	if err := stranger.Wait(); err == nil || err.Error() != "signal: killed" {
		fmt.Println("the stranger was reaped:", err)
	}
	return hit
}

// strangerSurvives tries everything that could hit the new owner of a number.
func strangerSurvives(old platform.Stat, pidfd int, w *watch) {
	if err := signalMember(old, syscall.SIGKILL); err != platform.ErrGone {
		fmt.Println("signalMember:", err)
	}
	if got := w.await(nil, nil, time.Now().Add(5*time.Second), nil); got != memberGone || len(w.files) != 0 {
		fmt.Println("watch:", got, w.files)
	}
	if w.add(old); len(w.files) != 0 {
		fmt.Println("a stranger is watched")
	}
	for _, group := range []func(int, syscall.Signal) error{platform.SignalPidfdGroup, func(int, syscall.Signal) error { return unix.EINVAL }} {
		signalPidfdGroup = group
		fd, err := unix.Dup(pidfd)
		if err != nil {
			fmt.Println(err)
			return
		}
		g, err := OpenRemote(Remote{PID: old.PID, Pidfd: fd, Token: "none"})
		if err != nil {
			fmt.Println("OpenRemote:", err)
			return
		}
		if id, _ := g.Identity(); id.StartTicks != 0 {
			fmt.Println("the stranger's identity was taken:", id)
		}
		g.homes[old.PID], g.seen[old.PID] = true, old.StartTicks // it was known in the tree, too
		<-g.Done()
		if r := g.Stop(Ladder{Grace: 10 * time.Millisecond}, nil); len(r.Survivors) > 0 {
			fmt.Println("survivors:", r.Survivors)
		}
		_ = g.SignalLeader(syscall.SIGKILL)
		_ = g.Signal(syscall.SIGKILL)
		g.Release()
	}
}

func TestA8NumberHasAnotherOwner(t *testing.T) {
	needRoot(t)
	for _, of := range []string{"remote", "stolen"} {
		t.Run(of, func(t *testing.T) {
			clean(t)
			cmd := exec.Command("/proc/self/exe")
			cmd.Args = []string{helperName, "reuse", of}
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
			out, err := cmd.CombinedOutput()
			switch {
			case strings.HasPrefix(string(out), "skip"):
				t.Skip(string(out))
			case len(out) > 0 || err != nil:
				t.Errorf("%s %v", out, err)
			}
		})
	}
}
