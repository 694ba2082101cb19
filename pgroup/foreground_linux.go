package pgroup

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// A Foreground lends the controlling terminal of this process to a command in
// a group of its own and takes it back, so that keys, job control and
// full-screen programs work as if the command had been started by the shell
// itself. It belongs to one goroutine. A nil *Foreground does nothing.
type Foreground struct {
	g     *Group
	tty   *platform.Terminal
	own   int // our process group
	eager bool
	given bool
	asked bool // the command wanted the terminal while we were not in front
	modes platform.TerminalModes
	saved bool
}

// OpenForeground returns nil where there is no controlling terminal. It hands
// the terminal over at once only if that can disturb nobody: we lead our own
// group, are alone in it, it is in front, and standard output is a terminal.
// Otherwise the terminal is handed over when the command asks for it.
func OpenForeground(stdoutIsTerminal bool) *Foreground {
	tty, err := platform.OpenTerminal()
	if err != nil {
		return nil
	}
	f := &Foreground{tty: tty, own: platform.Pgrp()}
	if stdoutIsTerminal && f.own == unix.Getpid() && f.inFront() {
		f.eager = f.alone()
	}
	if f.inFront() {
		if m, err := tty.Modes(); err == nil {
			f.modes, f.saved = m, true
		}
	}
	return f
}

func (f *Foreground) inFront() bool {
	pgid, err := f.tty.Foreground()
	return err == nil && pgid == f.own
}

// alone reports whether no sibling shares our group, as the other commands of
// a pipeline do. They are children of our parent, the shell.
func (f *Foreground) alone() bool {
	self, parent := unix.Getpid(), unix.Getppid()
	siblings := platform.Children(parent)
	if len(siblings) == 0 { // unreadable, or the parent is gone
		return len(platform.GroupMembers(f.own)) <= 1
	}
	for _, pid := range siblings {
		if st, err := platform.ReadStat(pid); err == nil && pid != self && st.PGID == f.own && st.Alive() {
			return false
		}
	}
	return true
}

// Begin is called once the command runs.
func (f *Foreground) Begin(g *Group) {
	if f == nil {
		return
	}
	f.g = g
	if f.eager {
		f.give()
	}
}

// HandedOver reports whether keys go to the command alone now.
func (f *Foreground) HandedOver() bool { return f != nil && f.given }

func (f *Foreground) give() {
	if f.tty.SetForeground(f.g.pid) == nil {
		f.given, f.asked = true, false
	}
	_ = f.g.Signal(syscall.SIGCONT)
}

func (f *Foreground) take() {
	if f.lent() {
		_ = f.tty.SetForeground(f.own)
	}
	if f.given {
		f.given = false
		f.eager = true // it had it: give it again with fg
	}
}

// lent reports whether what we gave is still out: the shell may have taken the
// terminal meanwhile, because somebody stopped this process alone, and then it
// is not ours to take. The command may have passed it on to a group of its own.
func (f *Foreground) lent() bool {
	if !f.given {
		return false
	}
	front, err := f.tty.Foreground()
	if err != nil || front == f.g.pid {
		return err == nil
	}
	shell, _ := unix.Getpgid(unix.Getppid())
	session, _ := unix.Getsid(0)
	return front != f.own && front != shell && front != session
}

// Stopped is called with the signal that stopped the leader. A command that
// was stopped for want of the terminal gets it if we have it; any other stop
// becomes ours too, so that the shell sees a stopped job.
func (f *Foreground) Stopped(sig syscall.Signal) {
	if f == nil {
		return
	}
	wantsTTY := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	switch {
	case wantsTTY && f.inFront():
		f.give()
		return
	case wantsTTY:
		f.asked = true
	case sig == syscall.SIGSTOP && !f.given:
		return // somebody stopped that one process; our own state is ours
	default:
		sig = syscall.SIGTSTP
	}
	had := f.lent()
	f.take()
	if platform.GroupIsOrphaned(f.own) || signal.Ignored(sig) {
		// Nobody could continue us: an orphaned group cannot be stopped by
		// the keyboard, and neither may the command be.
		if had {
			f.give()
		} else if !wantsTTY {
			_ = f.g.Signal(syscall.SIGCONT)
		}
		return
	}
	platform.StopGroup(sig) // returns once we were continued
}

// Continued is called when this process got SIGCONT.
func (f *Foreground) Continued() {
	if f == nil || f.g == nil {
		return
	}
	if (f.eager || f.asked) && f.inFront() {
		f.give()
		return
	}
	if f.given && !f.lent() { // we go on in the background
		f.given, f.eager = false, true
	}
	_ = f.g.Signal(syscall.SIGCONT)
}

// End takes the terminal back after the leader ended. With restore the modes
// it had before are set again: for a command that was killed and could not do
// it. It reports whether a keyboard signal that ended the command must also
// reach the rest of our job, which did not get it because the terminal was
// lent out.
func (f *Foreground) End(exit platform.Exit, restore bool) (share bool) {
	if f == nil {
		return false
	}
	defer f.tty.Close()
	had := f.lent()
	f.take()
	if restore && had && f.saved {
		_ = f.tty.Restore(f.modes)
	}
	key := exit.Signal == syscall.SIGINT || exit.Signal == syscall.SIGQUIT
	return had && key && !(f.own == unix.Getpid() && f.alone())
}

// ShareSignal sends the signal that ended the command to the rest of our own
// group, which runs in the same job. This process must be about to die of it.
func ShareSignal(sig syscall.Signal) {
	signal.Ignore(sig)
	_ = unix.Kill(0, sig)
}
