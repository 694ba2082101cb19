package platform

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// A Terminal is a descriptor of a terminal that stays in blocking mode and out
// of Go's poller. It has no lock: one goroutine at a time.
type Terminal struct{ fd int }

// TerminalModes are saved terminal settings (termios). The zero value holds
// none, and restoring it does nothing.
type TerminalModes struct {
	termios unix.Termios
	valid   bool
}

// OpenTerminal opens the controlling terminal through /dev/tty (tty(4)),
// whatever stdin, stdout and stderr are. ErrNoTerminal when there is none. The
// caller closes it.
func OpenTerminal() (*Terminal, error) {
	fd, err := openRetry("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	switch err {
	case nil:
		return &Terminal{fd}, nil
	case unix.ENXIO, unix.ENOENT, unix.ENODEV, unix.EIO: // none; no such file; hung up
		return nil, ErrNoTerminal
	}
	return nil, fmt.Errorf("open /dev/tty: %w", err)
}

// TerminalAt makes a Terminal of a descriptor that is one, such as a pty's
// master. The Terminal owns it from then on.
func TerminalAt(fd int) *Terminal { return &Terminal{fd} }

// FD is the descriptor; it belongs to the Terminal.
func (t *Terminal) FD() int { return t.fd }

// Close closes the descriptor. Closing twice does nothing.
func (t *Terminal) Close() error {
	if t.fd < 0 {
		return nil
	}
	fd := t.fd
	t.fd = -1
	return unix.Close(fd)
}

// Foreground is the process group in front (tcgetpgrp(3)); 0 when that group is
// in a pid namespace that this process cannot see.
func (t *Terminal) Foreground() (pgid int, err error) {
	pgid, err = unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0, fmt.Errorf("terminal's foreground group: %w", err)
	}
	return pgid, nil
}

// SetForeground puts a process group of our session in front (tcsetpgrp(3)),
// also when we are in the background: SIGTTOU, which would stop us, is blocked
// for the calling thread meanwhile, and for it alone, as a process-wide ignore
// would be inherited by a command started at that moment. EPERM when the group
// is empty or of another session.
func (t *Terminal) SetForeground(pgid int) error {
	err := withoutTTOU(func() error { return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pgid) })
	if err != nil {
		return fmt.Errorf("put group %d in front: %w", pgid, err)
	}
	return nil
}

// withoutTTOU runs f on a thread that has SIGTTOU blocked; the kernel then lets
// a background process change the terminal (tty_check_change).
func withoutTTOU(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set, old unix.Sigset_t
	setSignal(&set, unix.SIGTTOU)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
		return err
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// Modes saves the terminal's settings.
func (t *Terminal) Modes() (TerminalModes, error) {
	termios, err := unix.IoctlGetTermios(t.fd, unix.TCGETS)
	if err != nil {
		return TerminalModes{}, fmt.Errorf("terminal's modes: %w", err)
	}
	return TerminalModes{*termios, true}, nil
}

// Restore sets saved modes again if they differ, at once (TCSETS: a terminal
// held by ^S is not waited for) and also from the background. It is for the
// death of a full-screen program by a signal: after an ordinary exit the modes
// may be changed on purpose (stty).
func (t *Terminal) Restore(m TerminalModes) error {
	if !m.valid {
		return nil
	}
	if now, err := t.Modes(); err != nil || now == m {
		return err
	}
	err := withoutTTOU(func() error { return unix.IoctlSetTermios(t.fd, unix.TCSETS, &m.termios) })
	if err != nil {
		return fmt.Errorf("restore the terminal's modes: %w", err)
	}
	return nil
}

// MakeRaw sets raw mode (cfmakeraw in termios(3)) and returns the modes before.
func (t *Terminal) MakeRaw() (TerminalModes, error) {
	old, err := t.Modes()
	if err != nil {
		return old, err
	}
	raw := old
	m := &raw.termios
	m.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	m.Oflag &^= unix.OPOST
	m.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	m.Cflag = m.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	m.Cc[unix.VMIN], m.Cc[unix.VTIME] = 1, 0
	return old, t.Restore(raw)
}

// Size is the terminal's size.
func (t *Terminal) Size() (WinSize, error) {
	ws, err := unix.IoctlGetWinsize(t.fd, unix.TIOCGWINSZ)
	if err != nil {
		return WinSize{}, fmt.Errorf("terminal's size: %w", err)
	}
	return WinSize{ws.Row, ws.Col, ws.Xpixel, ws.Ypixel}, nil
}

// SetSize sets the size; when it differs the kernel sends SIGWINCH to the group
// in front. Linux allows it from the background too.
func (t *Terminal) SetSize(s WinSize) error {
	ws := unix.Winsize{Row: s.Rows, Col: s.Cols, Xpixel: s.XPixels, Ypixel: s.YPixels}
	if err := unix.IoctlSetWinsize(t.fd, unix.TIOCSWINSZ, &ws); err != nil {
		return fmt.Errorf("set the terminal's size: %w", err)
	}
	return nil
}

// IsTerminal reports whether fd is a terminal.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// Pgrp is the process group of this process.
func Pgrp() int { return unix.Getpgrp() }

// Session is the session of a process, 0 for our own; ErrGone when there is no
// such process. Zombies have one.
func Session(pid int) (int, error) {
	sid, err := unix.Getsid(pid)
	if err == unix.ESRCH {
		return 0, fmt.Errorf("session of process %d: %w", pid, ErrGone)
	}
	if err != nil {
		return 0, fmt.Errorf("session of process %d: %w", pid, err)
	}
	return sid, nil
}

// GroupMembers lists the processes of a group that /proc shows, zombies
// included. It asks getpgid(2) for each number in /proc (some 0.3 ms with 300
// processes): not for a hot path.
func GroupMembers(pgid int) []int {
	var members []int
	for _, pid := range numericEntries("/proc") {
		if g, err := unix.Getpgid(pid); err == nil && g == pgid {
			members = append(members, pid)
		}
	}
	return members
}

// GroupIsOrphaned reports whether no member of the group has a parent in
// another group of the same session: the kernel does not stop such a group by
// TSTP, TTIN or TTOU, as nobody could continue it (setpgid(2)).
func GroupIsOrphaned(pgid int) bool {
	for _, pid := range GroupMembers(pgid) {
		s, err := ReadStat(pid)
		if err != nil || !s.Alive() || s.PPID <= 0 {
			continue
		}
		parentGroup, err := unix.Getpgid(s.PPID)
		if err != nil || parentGroup == pgid {
			continue
		}
		if sid, err := unix.Getsid(s.PPID); err == nil && sid == s.SID {
			return false
		}
	}
	return true
}
