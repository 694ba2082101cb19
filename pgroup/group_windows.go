package pgroup

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"procsup/platform"
)

func groupAttr(Command) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// signalGroup can only end the direct child: Windows has no signals.
func signalGroup(p *os.Process, _ int, sig syscall.Signal) error {
	err := p.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return platform.ErrGone
	}
	if err != nil {
		return fmt.Errorf("end process %d: %w", p.Pid, err)
	}
	return nil
}

func exitOf(st *os.ProcessState) platform.Exit { return platform.Exit{Code: st.ExitCode()} }
