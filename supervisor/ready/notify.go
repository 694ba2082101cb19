package ready

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Message is what one datagram of sd_notify(3) says. Assignments that procsup
// does not use are left out.
type Message struct {
	Ready, Reloading, Stopping bool
	Status                     *string       // nil: not said
	MainPID                    int           // 0: not said
	Alive                      bool          // WATCHDOG=1
	Trigger                    bool          // WATCHDOG=trigger: it wants to be ended
	Watchdog                   time.Duration // WATCHDOG_USEC, 0: not said; < 0: switched off
	Extend                     time.Duration // EXTEND_TIMEOUT_USEC, 0: not said
	Barrier, FDStore           bool
}

// errMalformed says that a datagram holds no assignment.
var errMalformed = errors.New("no assignment NAME=value in it")

// maxStatus bounds the text of STATUS that is kept.
const maxStatus = 512

// ParseMessage reads a datagram: assignments, one a line.
func ParseMessage(b []byte) (m Message, err error) {
	if bytes.IndexByte(b, 0) >= 0 {
		return m, errMalformed
	}
	said := 0
	for line := range strings.SplitSeq(string(b), "\n") {
		name, value, ok := strings.Cut(line, "=")
		if !ok || !goodName(name) {
			if line != "" {
				return Message{}, errMalformed
			}
			continue
		}
		said++
		if !m.assign(name, value) {
			return Message{}, errMalformed
		}
	}
	if said == 0 {
		return m, errMalformed
	}
	return m, nil
}

func goodName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// assign takes one assignment and reports whether its value makes sense.
func (m *Message) assign(name, value string) (ok bool) {
	ok = true
	switch name {
	case "READY":
		m.Ready = m.Ready || value == "1"
	case "RELOADING":
		m.Reloading = m.Reloading || value == "1"
	case "STOPPING":
		m.Stopping = m.Stopping || value == "1"
	case "STATUS":
		s := clip(strings.ToValidUTF8(value, "\ufffd"))
		m.Status = &s
	case "MAINPID":
		m.MainPID, ok = positive(value)
	case "WATCHDOG":
		m.Alive, m.Trigger = m.Alive || value == "1", m.Trigger || value == "trigger"
	case "WATCHDOG_USEC":
		if m.Watchdog, ok = micros(value); ok && m.Watchdog == 0 {
			m.Watchdog = -1
		}
	case "EXTEND_TIMEOUT_USEC":
		m.Extend, ok = micros(value)
	case "MONOTONIC_USEC": // goes with RELOADING; the order of datagrams says the same
		_, ok = micros(value)
	case "BARRIER":
		m.Barrier = m.Barrier || value == "1"
	case "FDSTORE":
		m.FDStore = m.FDStore || value == "1"
	}
	return ok
}

// clip cuts a text to what is kept of it, between runes.
func clip(s string) string {
	if len(s) <= maxStatus {
		return s
	}
	n := maxStatus
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func positive(s string) (int, bool) {
	n, err := strconv.ParseInt(s, 10, 32)
	return int(n), err == nil && n > 0
}

// micros reads microseconds; more than 100 years are as many.
func micros(s string) (time.Duration, bool) {
	const most = 100 * 365 * 24 * time.Hour
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, false
	}
	if n > uint64(most/time.Microsecond) {
		return most, true
	}
	return time.Duration(n) * time.Microsecond, true
}
