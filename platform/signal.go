package platform

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// ParseSignal reads a signal by name, with or without "SIG", in any case, or
// by number. Only signals that kill(2) can send are accepted; 0 is not.
func ParseSignal(s string) (syscall.Signal, error) {
	name := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(s)), "SIG")
	for sig, n := range signalNames {
		if n == name {
			return sig, nil
		}
	}
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= maxSignal {
		return syscall.Signal(n), nil
	}
	return 0, fmt.Errorf("unknown signal %q (names such as TERM, INT, HUP, or a number from 1 to %d)", s, maxSignal)
}

// SignalName is the short name of a signal, such as TERM; a number where it
// has none; "" for 0.
func SignalName(sig syscall.Signal) string {
	if sig == 0 {
		return ""
	}
	if n, ok := signalNames[sig]; ok {
		return n
	}
	return strconv.Itoa(int(sig))
}

// A SignalClass is what a supervisor does with a signal that it gets.
type SignalClass uint8

// The classes. What is in none of the first four goes to the command alone.
const (
	PassOn    SignalClass = iota // USR1, ALRM and the like: meant for the one process
	AsksStop                     // INT, TERM, HUP, QUIT: the tree is to end
	OfChild                      // CHLD
	Continues                    // CONT
	OfJob                        // TSTP, WINCH: sent by a terminal to a whole job
)
