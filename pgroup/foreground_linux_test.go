package pgroup

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"procsup/platform"
)

func init() {
	helpers["shell"] = shell
	helpers["front"] = front
}

const logFD, orderFD = 3, 4

// shell leads a session on a terminal and runs front as a job, in a group of
// its own ("own") or in the shell's ("same"). It does job control by what it is
// told on orderFD: fg, bg, stop (SIGSTOP to front alone).
func shell(args []string) int {
	log, orders := os.NewFile(logFD, "log"), bufio.NewReader(os.NewFile(orderFD, "orders"))
	tty, err := platform.OpenTerminal()
	if err != nil {
		fmt.Fprintln(log, err)
		return 1
	}
	job := exec.Command("/proc/self/exe")
	job.Args = []string{helperName, "front", args[1]}
	job.Stdin, job.Stdout, job.Stderr, job.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{log}
	if args[0] == "own" {
		job.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: true, Ctty: 0}
	}
	if err := job.Start(); err != nil {
		fmt.Fprintln(log, err)
		return 1
	}
	pid := job.Process.Pid
	go func() { // ends with the test
		for {
			switch order, err := orders.ReadString('\n'); {
			case err != nil:
				return
			case order == "stop\n":
				_ = unix.Kill(pid, unix.SIGSTOP)
			case order == "fg\n":
				_ = tty.SetForeground(pid)
				fallthrough
			default:
				_ = unix.Kill(-pid, unix.SIGCONT)
			}
		}
	}()
	for {
		var ws unix.WaitStatus
		if _, err := unix.Wait4(pid, &ws, unix.WUNTRACED, nil); err == unix.EINTR {
			continue
		}
		before, _ := tty.Foreground()
		_ = tty.SetForeground(platform.Pgrp())
		if ws.Stopped() {
			fmt.Fprintln(log, "shell: stopped", platform.SignalName(ws.StopSignal()))
			continue
		}
		fmt.Fprintf(log, "shell: ended %d, shell in front %v\n", ws.ExitStatus(), before == platform.Pgrp())
		return 0
	}
}

// front is a program such as procsup run on a terminal.
func front(args []string) int {
	log := os.NewFile(logFD, "log")
	unix.CloseOnExec(logFD)
	tty, _ := platform.OpenTerminal()
	fg := OpenForeground(true)
	sigs := make(chan os.Signal, 16)
	signal.Notify(sigs, unix.SIGCHLD, unix.SIGCONT)
	g, err := Start(Command{Path: "/usr/bin/perl", Args: []string{"perl", "-e", perlPrelude + args[0]},
		Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}, Config{Containment: Grp})
	if err != nil {
		fmt.Fprintln(log, err)
		return 1
	}
	fg.Begin(g)
	fmt.Fprintln(log, "begun, given", fg.HandedOver())
	for {
		select {
		case <-g.Done():
			exit, _ := g.Exit()
			share := fg.End(exit, false)
			at, _ := tty.Foreground()
			fmt.Fprintf(log, "ended %d %s, share %v, in front %v\n", exit.Code, platform.SignalName(exit.Signal), share, at == platform.Pgrp())
			g.Reap()
			return 0
		case s := <-sigs:
			if s == unix.SIGCONT {
				fg.Continued()
				fmt.Fprintln(log, "continued, given", fg.HandedOver())
			} else if sig := platform.PeekStopped(g.PID()); sig != 0 {
				fmt.Fprintln(log, "stopped by", platform.SignalName(sig))
				fg.Stopped(sig)
				fmt.Fprintln(log, "goes on, given", fg.HandedOver())
			}
		}
	}
}

// A job is a shell helper on a terminal that the test types at.
type job struct {
	t      *testing.T
	keys   *os.File
	screen *bufio.Reader
	log    *bufio.Reader
	orders *os.File
}

// startJob starts shell, or for "alone" front as the session's leader, whose
// group is orphaned.
func startJob(t *testing.T, group, script string) *job {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	logR, logW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	orderR, orderW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{helperName, "shell", group, script}
	if group == "alone" {
		cmd.Args = []string{helperName, "front", script}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = slave, slave, slave, []*os.File{logW, orderR}
	cmd.Env = append(os.Environ(), TokenVar+"="+mark(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{slave, logW, orderR} {
		f.Close()
	}
	j := &job{t: t, keys: master, screen: bufio.NewReader(master), log: bufio.NewReader(logR), orders: orderW}
	t.Cleanup(func() {
		cmd.Process.Kill()
		for _, f := range []*os.File{master, logR, orderW} { // the terminal hangs up
			f.Close()
		}
		cmd.Wait()
	})
	return j
}

// shows reads the screen up to a line that ends so.
func (j *job) shows(want string) {
	j.t.Helper()
	var seen string
	for {
		line, err := j.screen.ReadString('\n')
		if seen += line; strings.HasSuffix(strings.TrimRight(line, "\r\n"), want) {
			return
		}
		if err != nil {
			j.t.Fatalf("screen shows %q (%v), want %q", seen, err, want)
		}
	}
}

// says reads log lines, which must be these.
func (j *job) says(want ...string) {
	j.t.Helper()
	for _, w := range want {
		got, err := j.log.ReadString('\n')
		if strings.TrimSpace(got) != w {
			j.t.Fatalf("log says %q (%v), want %q", got, err, w)
		}
	}
}

func (j *job) types(keys string) { _, _ = j.keys.WriteString(keys) }
func (j *job) order(s string)    { fmt.Fprintln(j.orders, s) }

const inFront = `print tcgetpgrp(0) == getpgrp() ? "front\n" : "back\n"; `

func TestForegroundEagerWhenAlone(t *testing.T) {
	clean(t)
	j := startJob(t, "own", inFront+`my $x = <STDIN>; print "got $x"; exit 3`)
	j.says("begun, given true")
	j.shows("front")
	j.types("hello\n")
	j.shows("got hello")
	j.says("ended 3 , share false, in front true", "shell: ended 0, shell in front false")
}

func TestForegroundOnlyWhenAskedInASharedGroup(t *testing.T) {
	for name, x := range map[string]struct{ ask, signal string }{
		"A14 TTIN": {`my $x = <STDIN>; print "got $x"; `, "TTIN"},
		"A13 TTOU": {`system("stty tostop -echo"); print "got hello\n"; `, ""},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			j := startJob(t, "same", inFront+x.ask+inFront+`exit 4`)
			j.says("begun, given false")
			j.shows("back")
			j.types("hello\n")
			if x.signal == "" {
				x.signal = "TTOU"
			}
			j.says("stopped by "+x.signal, "goes on, given true")
			j.shows("got hello")
			j.shows("front")
			j.says("ended 4 , share false, in front true", "shell: ended 0, shell in front true")
		})
	}
}

// The command dies of ^C alone, but its job is more than that.
func TestForegroundSharesTheKey(t *testing.T) {
	clean(t)
	j := startJob(t, "same", `my $x = <STDIN>; print "got $x"; sleep 1000`)
	j.types("hello\n")
	j.says("begun, given false", "stopped by TTIN", "goes on, given true")
	j.shows("got hello")
	j.types("\x03")
	j.says("ended -1 INT, share true, in front true", "shell: ended 0, shell in front true")
}

func TestForegroundStopAndGoOn(t *testing.T) {
	clean(t)
	j := startJob(t, "own", `print "up\n"; my $x = <STDIN>; print "got $x"; `+inFront)
	j.says("begun, given true")
	j.shows("up")
	j.types("\x1a")
	j.says("stopped by TSTP", "shell: stopped TSTP")
	j.order("fg")
	for range 2 { // in either order
		if line, _ := j.log.ReadString('\n'); !strings.HasSuffix(line, "given true\n") && line != "goes on, given false\n" {
			t.Errorf("log says %q", line)
		}
	}
	j.types("hello\n")
	j.shows("got hello")
	j.shows("front")
	j.says("ended 0 , share false, in front true", "shell: ended 0, shell in front false")
}

// In the background the command goes on, and its end takes nothing from the
// shell.
func TestForegroundGoesOnInTheBackground(t *testing.T) {
	for name, stop := range map[string]func(j *job){
		"TSTP": func(j *job) {
			j.types("\x1a")
			j.says("stopped by TSTP", "shell: stopped TSTP")
			j.order("bg")
			j.says("goes on, given false")
		},
		"STOP of the supervisor alone": func(j *job) {
			j.order("stop")
			j.says("shell: stopped STOP")
			j.order("bg")
		},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			j := startJob(t, "own", `$SIG{CONT} = sub { print "cont\n"; exit if tcgetpgrp(0) != getpgrp() }; hold(); print "up\n"; hang()`)
			j.says("begun, given true")
			j.shows("up")
			stop(j)
			j.says("continued, given false", "ended 0 , share false, in front false", "shell: ended 0, shell in front true")
		})
	}
}

// Nobody could continue an orphaned group: the command goes on at once.
func TestForegroundOrphanedGroupIsNotStopped(t *testing.T) {
	clean(t)
	j := startJob(t, "alone", `print "up\n"; kill "TSTP", $$; print "on\n"; `+inFront)
	j.says("begun, given true", "stopped by TSTP", "goes on, given true")
	j.shows("on")
	j.shows("front")
	j.says("ended 0 , share false, in front true")
}

func TestForegroundNil(t *testing.T) {
	var f *Foreground
	f.Begin(nil)
	f.Stopped(unix.SIGTSTP)
	f.Continued()
	if f.HandedOver() || f.End(platform.Exit{Signal: unix.SIGINT}, true) {
		t.Error("a nil Foreground does something")
	}
}
