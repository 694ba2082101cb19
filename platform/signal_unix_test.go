//go:build unix

package platform

import (
	"syscall"
	"testing"
)

func TestParseSignal(t *testing.T) {
	for s, want := range map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "SIGTERM": syscall.SIGTERM, "sigterm": syscall.SIGTERM, " int ": syscall.SIGINT,
		"9": syscall.SIGKILL, "64": 64, "USR1": syscall.SIGUSR1, "Hup": syscall.SIGHUP, "34": 34,
	} {
		if got, err := ParseSignal(s); got != want || err != nil {
			t.Errorf("ParseSignal(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0", "-1", "-9", "65", "TERMINATE", "SIG", "SIGSIGTERM", "1.5", "0x9"} {
		if got, err := ParseSignal(s); err == nil {
			t.Errorf("ParseSignal(%q) = %v", s, got)
		}
	}
	for s := syscall.Signal(1); s <= maxSignal; s++ {
		if got, err := ParseSignal(SignalName(s)); got != s || err != nil {
			t.Errorf("%d is called %q, which reads %d, %v", s, SignalName(s), got, err)
		}
	}
	if got := SignalName(0); got != "" {
		t.Errorf("signal 0 is called %q", got)
	}
}
