package platform

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// die ends itself by signal args[0], which is first treated as args[1] says,
// with core files allowed.
func die(args []string) int {
	n, _ := strconv.Atoi(args[0])
	sig := syscall.Signal(n)
	switch args[1] {
	case "ignored":
		signal.Ignore(sig)
	case "notified":
		signal.Notify(make(chan os.Signal, 1), sig)
	case "blocked":
		runtime.LockOSThread()
		var set unix.Sigset_t
		setSignal(&set, sig)
		unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil)
	}
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	DieBySignal(sig)
	return 99
}

// dieStatus runs a die helper and checks that it printed and dumped nothing.
func dieStatus(t *testing.T, line string, flags uintptr) syscall.WaitStatus {
	t.Helper()
	var stderr bytes.Buffer
	cmd := helperCmd(t, "die "+line)
	cmd.Env = append(cmd.Env, "GOTRACEBACK=crash")
	cmd.Dir, cmd.Stderr = t.TempDir(), &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	cmd.Run()
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if stderr.Len() > 0 {
		t.Errorf("signal %s: printed %.300s", line, stderr.String())
	}
	if files, _ := os.ReadDir(cmd.Dir); len(files) > 0 || ws.CoreDump() {
		t.Errorf("signal %s: core %v, files %v", line, ws.CoreDump(), files)
	}
	return ws
}

// A19: the parent sees the death by signal itself, for every signal that can
// end a process, whatever was set for it before.
func TestA19DieBySignal(t *testing.T) {
	t.Parallel()
	for n := 1; n <= maxSignal; n++ {
		sig := syscall.Signal(n)
		ws := dieStatus(t, fmt.Sprint(n, " plain"), 0)
		switch {
		case endsByDefault(sig) && (!ws.Signaled() || ws.Signal() != sig):
			t.Errorf("%s: status %#x, want death by it", SignalName(sig), ws)
		case !endsByDefault(sig) && (!ws.Exited() || ws.ExitStatus() != 128+n):
			t.Errorf("%s: status %#x, want exit %d", SignalName(sig), ws, 128+n)
		}
	}
}

func TestA19DieWhateverWasSet(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGABRT, unix.SIGSEGV, unix.SIGHUP} {
		for _, before := range []string{"ignored", "notified", "blocked"} {
			ws := dieStatus(t, fmt.Sprint(int(sig), " ", before), 0)
			if !ws.Signaled() || ws.Signal() != sig {
				t.Errorf("%s %s: status %#x, want death by it", SignalName(sig), before, ws)
			}
		}
	}
}

// As PID 1 the kernel drops what has its default action: the code must do.
func TestA19DieAsPID1(t *testing.T) {
	needRoot(t)
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGSEGV, unix.SIGQUIT} {
		ws := dieStatus(t, fmt.Sprint(int(sig), " plain"), unix.CLONE_NEWPID)
		if !ws.Exited() || ws.ExitStatus() != 128+int(sig) {
			t.Errorf("%s: status %#x, want exit %d", SignalName(sig), ws, 128+int(sig))
		}
	}
}

func TestEndsByDefault(t *testing.T) {
	var not []string
	for sig := syscall.Signal(1); sig <= maxSignal; sig++ {
		if !endsByDefault(sig) {
			not = append(not, SignalName(sig))
		}
	}
	if got, want := strings.Join(not, " "), "CHLD CONT STOP TSTP TTIN TTOU URG WINCH"; got != want {
		t.Errorf("not ending: %s, want %s (signal(7))", got, want)
	}
}
