package pgroup

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// killGroup is the only place that negates a PID. kill(2) reads 0 as the
// caller's own group and -1 as every process there is; our own group is
// refused too.
func killGroup(pgid int, sig syscall.Signal) error {
	if pgid <= 1 || pgid == unix.Getpgrp() {
		return fmt.Errorf("signal group %d: %w", pgid, unix.EINVAL)
	}
	switch err := unix.Kill(-pgid, sig); err {
	case nil:
		return nil
	case unix.ESRCH:
		return platform.ErrGone
	default:
		return fmt.Errorf("signal group %d: %w", pgid, err)
	}
}

// Signal sends sig to the leader's process group. ErrReaped after Reap.
func (g *Group) Signal(sig syscall.Signal) error {
	return g.send(sig, ToGroup)
}

// SignalLeader sends sig to the leader alone.
func (g *Group) SignalLeader(sig syscall.Signal) error {
	return g.send(sig, ToLeader)
}

func (g *Group) send(sig syscall.Signal, to string) error {
	if to == ToLeader {
		return g.sendLeader(sig)
	}
	if !g.pinned() {
		return g.sendRemote(sig)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return fmt.Errorf("signal command %d: %w", g.pid, ErrReaped)
	}
	return killGroup(g.pid, sig)
}

// pinned reports whether the leader's number is kept from reuse by us, its
// parent, until Reap. A host program may have reaped it against the rules.
func (g *Group) pinned() bool {
	if g.remote {
		return false
	}
	if !ended(g.done) {
		return true
	}
	return g.taken == nil && !errors.Is(g.withPidfd(func(fd int) error {
		_, _, err := platform.PeekExit(fd)
		return err
	}), unix.ECHILD)
}

// withPidfd is ErrReaped once Reap or Release have closed the pidfd.
func (g *Group) withPidfd(f func(fd int) error) error {
	rc, err := g.pidfd.SyscallConn()
	if err != nil {
		return ErrReaped
	}
	if rc.Control(func(fd uintptr) { err = f(int(fd)) }) != nil {
		return ErrReaped
	}
	return err
}

func (g *Group) sendLeader(sig syscall.Signal) error {
	if err := g.withPidfd(func(fd int) error { return platform.SignalPidfd(fd, sig) }); err != nil {
		return fmt.Errorf("signal command %d: %w", g.pid, err)
	}
	return nil
}

// note keeps a record of a signal.
func (g *Group) note(sig syscall.Signal, to string, pid int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent = append(g.sent, Sent{Signal: sig, To: to, PID: pid, At: time.Now(), Err: err})
}

// Signals lists what Stop and Finish have sent so far.
func (g *Group) Signals() []Sent {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Sent(nil), g.sent...)
}

// signalMember signals one process through a pidfd, after checking that the
// number still names the process that was seen.
func signalMember(m platform.Stat, sig syscall.Signal) error {
	if m.PID <= 1 || m.PID == os.Getpid() {
		return fmt.Errorf("signal process %d: %w", m.PID, unix.EINVAL)
	}
	fd, err := platform.OpenPidfd(m.PID)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	now, err := platform.ReadStat(m.PID)
	if err != nil {
		return err
	}
	if now.StartTicks != m.StartTicks || !now.Alive() { // a zombie takes a signal and does nothing
		return platform.ErrGone
	}
	return platform.SignalPidfd(fd, sig)
}

// signalEach signals members one by one and continues them, so that a stopped
// one can act on it.
func (g *Group) signalEach(ms []platform.Stat, sig syscall.Signal) {
	for _, m := range ms {
		err := signalMember(m, sig)
		if errors.Is(err, platform.ErrGone) {
			continue
		}
		g.note(sig, ToMember, m.PID, err)
		if err == nil && sig != syscall.SIGKILL {
			_ = signalMember(m, syscall.SIGCONT)
		}
	}
}
