package platform

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// ttyLeader leads a session with a controlling terminal, as a shell does. It
// runs ttychild in a background group and says if that was stopped.
func ttyLeader([]string) int {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"=ttychild")
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(cmd.Process.Pid, &ws, unix.WUNTRACED, nil); err == unix.EINTR {
			continue
		} else if err != nil {
			fmt.Println(err)
			return 1
		}
		if !ws.Stopped() {
			return ws.ExitStatus()
		}
		fmt.Println("stopped by", ws.StopSignal())
		cmd.Process.Kill()
	}
}

// ttyChild is in the background of a terminal, in a group that can be stopped,
// and does there what would stop it.
func ttyChild([]string) int {
	runtime.LockOSThread() // so that its mask can be compared
	mask := blockedSignals()
	t, err := OpenTerminal()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer t.Close()
	own, leader := Pgrp(), os.Getppid()
	wantFront := func(want int) {
		if got, err := t.Foreground(); got != want || err != nil {
			fmt.Println("in front:", got, err, "want", want)
		}
	}
	check := func(what string, err error) {
		if err != nil {
			fmt.Println(what, err)
		}
	}
	wantFront(leader)
	check("take it from the background", t.SetForeground(own))
	wantFront(own)
	check("give it back", t.SetForeground(leader))
	wantFront(leader)
	old, err := t.MakeRaw()
	check("raw from the background", err)
	if now, err := t.Modes(); err != nil || now == old {
		fmt.Println("not raw", err)
	}
	check("size from the background", t.SetSize(WinSize{Rows: 33, Cols: 101}))
	check("restore from the background", t.Restore(old))
	if now, err := t.Modes(); err != nil || now != old {
		fmt.Println("not restored", err)
	}
	if err := t.SetForeground(1); !errors.Is(err, unix.EPERM) {
		fmt.Println("another session's group in front:", err)
	}
	if got := blockedSignals(); got != mask {
		fmt.Println("blocked signals", got, "before", mask)
	}
	fmt.Println("done")
	return 0
}

func blockedSignals() string {
	b, _ := os.ReadFile("/proc/thread-self/status")
	_, rest, _ := strings.Cut(string(b), "SigBlk:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// A13: what would stop a background process by SIGTTOU works from there.
func TestA13TerminalFromTheBackground(t *testing.T) {
	t.Parallel()
	master, slave := openPty(t)
	cmd := helperCmd(t, "leader")
	cmd.Stdin = slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	out, err := cmd.Output()
	if string(out) != "done\n" || err != nil {
		t.Errorf("child in the background: %v\n%s", err, out)
	}
	if size, err := TerminalAt(int(master.Fd())).Size(); err != nil || size.Rows != 33 || size.Cols != 101 {
		t.Errorf("size %+v, %v", size, err)
	}
}

func openPty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close(); master.Close() })
	return master, slave
}

func noTTY([]string) int {
	_, err := OpenTerminal()
	fmt.Println(errors.Is(err, ErrNoTerminal), err)
	return 0
}

func TestOpenTerminalWithout(t *testing.T) {
	t.Parallel()
	cmd := helperCmd(t, "notty")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.Output()
	if want := "true " + ErrNoTerminal.Error() + "\n"; string(out) != want || err != nil {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}

func TestIsTerminal(t *testing.T) {
	t.Parallel()
	_, slave := openPty(t)
	if !IsTerminal(int(slave.Fd())) {
		t.Error("a pty is no terminal")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if IsTerminal(int(null.Fd())) || IsTerminal(-1) {
		t.Error("/dev/null or nothing is a terminal")
	}
}

func TestTerminalRestoreZero(t *testing.T) {
	t.Parallel()
	_, slave := openPty(t)
	term := TerminalAt(int(slave.Fd()))
	before, err := term.Modes()
	if err != nil {
		t.Fatal(err)
	}
	if err := term.Restore(TerminalModes{}); err != nil {
		t.Error(err)
	}
	if after, err := term.Modes(); err != nil || after != before {
		t.Errorf("modes changed by restoring none: %v", err)
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		attr     syscall.SysProcAttr
		orphaned bool
	}{
		"own group, parent in the session": {syscall.SysProcAttr{Setpgid: true}, false},
		"own session":                      {syscall.SysProcAttr{Setsid: true}, true},
	} {
		cmd := helperCmd(t, "hang")
		cmd.SysProcAttr = &tt.attr
		startReady(t, cmd)
		pid := cmd.Process.Pid
		if got := GroupMembers(pid); !slices.Equal(got, []int{pid}) {
			t.Errorf("%s: members %v, want %d", name, got, pid)
		}
		if got := GroupIsOrphaned(pid); got != tt.orphaned {
			t.Errorf("%s: orphaned %v", name, got)
		}
		own, err := Session(0)
		if err != nil {
			t.Fatal(err)
		}
		if sid, err := Session(pid); err != nil || (sid == own) == tt.orphaned {
			t.Errorf("%s: session %d, %v; ours is %d", name, sid, err, own)
		}
	}
	if _, err := Session(1 << 30); !errors.Is(err, ErrGone) {
		t.Errorf("session of nobody: %v", err)
	}
}
