package pgroup

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

func init() { helpers["reuse"] = reuse }

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
