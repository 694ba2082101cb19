package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var errNoHelper = errors.New("not tried: no helper program")

// probeWait bounds each wait for the probe's child, which has been killed by
// then; it is reached only where the kernel does not keep its word.
const probeWait = 5 * time.Second

// A childProbe is the one child of a probe, with what it has shown so far.
type childProbe struct {
	proc     *os.Process
	pidfd    int
	cgroup   *Cgroup // nil when it runs outside
	features []Feature
}

// probeChild starts the helper, inside cgroup where that is not nil and works,
// tries everything that needs a process on it, kills it and reaps it.
func probeChild(helper []string, cgroup *Cgroup) []Feature {
	p := &childProbe{pidfd: -1}
	if err := p.start(helper, cgroup); err != nil {
		fd, openErr := OpenPidfd(os.Getpid())
		if openErr == nil {
			unix.Close(fd)
		}
		p.add("pidfd_open", openErr, "a process can be named without its number", "Linux 5.3")
		p.add("waitid_nowait", err, "", "")
		return p.features
	}
	defer p.end()
	fd, err := OpenPidfd(p.proc.Pid)
	p.add("pidfd_open", err, "a process can be named without its number", "Linux 5.3, and a seccomp profile that allows it")
	if err != nil {
		return p.features
	}
	p.pidfd = fd
	p.signals()
	p.ending()
	return p.features
}

func (p *childProbe) add(name string, err error, detail, hint string) {
	p.features = append(p.features, feature(name, err, detail, hint))
}

// start runs the helper in its own group with /dev/null for everything.
func (p *childProbe) start(helper []string, cgroup *Cgroup) error {
	if len(helper) == 0 {
		if cgroup != nil {
			p.add("cgroup_clone", errNoHelper, "", "")
		}
		return errNoHelper
	}
	attr := &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}}
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		defer null.Close()
		attr.Files = []*os.File{null, null, null}
	}
	if cgroup != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, cgroup.FD()
		proc, err := os.StartProcess(helper[0], helper, attr)
		p.add("cgroup_clone", err, "a command starts inside its cgroup", "Linux 5.7, and a seccomp profile that allows clone3")
		if err == nil {
			p.proc, p.cgroup = proc, cgroup
			return nil
		}
		attr.Sys.UseCgroupFD = false
	}
	proc, err := os.StartProcess(helper[0], helper, attr)
	if err != nil {
		return fmt.Errorf("not tried: helper: %w", err)
	}
	p.proc = proc
	return nil
}

// end kills and reaps the child whatever came before: it must not outlive us.
func (p *childProbe) end() {
	p.proc.Kill()
	p.proc.Wait()
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
}

// signals sends signal 0, which asks only whether it could be sent.
func (p *childProbe) signals() {
	err := SignalPidfd(p.pidfd, 0)
	p.add("pidfd_send_signal", err, "a signal cannot hit a stranger", "Linux 5.1")
	err = SignalPidfdGroup(p.pidfd, 0)
	if errors.Is(err, unix.EINVAL) {
		err = errors.New("not in this kernel: the guard signals member by member")
	}
	p.add("pidfd_group_signal", err, "the guard can signal a whole group", "Linux 6.9")
}

// ending kills the child, sees its end without taking it, reaps it, and asks
// again afterwards.
func (p *childProbe) ending() {
	killed := error(nil)
	if p.cgroup != nil {
		killed = p.killByCgroup()
	}
	if p.cgroup == nil || killed != nil {
		p.proc.Kill()
	}
	exit, err := p.peek()
	if err == nil && exit.Signal != unix.SIGKILL && exit.Code != 0 { // 0: the helper was faster than the kill
		err = fmt.Errorf("a killed child ended with %+v", exit)
	}
	p.add("waitid_nowait", err, "an end is seen before it is taken", "Linux 5.4")
	p.proc.Wait()
	info, err := pidfdGetInfo(p.pidfd, unix.PIDFD_INFO_EXIT)
	if err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		err = errors.New("not in this kernel: a restart of keeper and supervisor makes exit codes `lost`")
	}
	p.add("pidfd_exit_info", err, "exit codes survive a restart of keeper and supervisor", "Linux 6.15")
}

// killByCgroup ends the child by its cgroup and waits until that is empty.
func (p *childProbe) killByCgroup() error {
	err := p.cgroup.Kill()
	p.add("cgroup_kill", err, "all of a run end at once", "")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeWait)
	defer cancel()
	p.add("cgroup_events", p.cgroup.WaitEmpty(ctx), "the last process's end is told", "")
	return nil
}

// peek waits for the child's end by polling its pidfd and leaves the zombie.
func (p *childProbe) peek() (Exit, error) {
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	for until := time.Now().Add(probeWait); time.Now().Before(until); {
		if _, err := unix.Poll(fds, int(probeWait.Milliseconds())); err == unix.EINTR {
			continue
		} else if err != nil {
			return Exit{}, fmt.Errorf("poll pidfd: %w", err)
		}
		exit, ended, err := PeekExit(p.pidfd)
		if err != nil || ended {
			return exit, err
		}
	}
	return Exit{}, errors.New("a killed child did not end")
}
