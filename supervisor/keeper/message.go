package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"procsup/platform"
)

// The protocol: one JSON object in each packet of a SOCK_SEQPACKET socket,
// descriptors beside it by SCM_RIGHTS. Receivers ignore fields and kinds they
// do not know and close descriptors that came with those.
//
//	keeper → supervisor            supervisor → keeper
//	hello version oldest …         hello version (what both speak), or demand
//	will + the lock's descriptor
//	runs seq runs + descriptors    ack seq count (descriptors received)
//	end
//	ack seq count mark error       register seq id token pipes mark + descriptors
//	exit, found                    spawned id pid start_ticks
//	shutdown deadline_ms           withdraw id, settled id
//	replace                        ready, replace exe, done, marks
//	                               trim id pipes, stopping, refuse code error
const (
	newestProtocol = 1 // that this code speaks
	oldestProtocol = 1

	maxMessage = 32 << 10 // bytes; a socket's buffer takes 208 KiB by default
	maxRuns    = 64       // runs in a message
	maxFDs     = 240      // descriptors in a message; the kernel's SCM_MAX_FD is 253
	maxPipes   = 16       // descriptors of one run
	maxID      = 128      // bytes
	maxToken   = 2048     // bytes; at most six times as many in JSON
)

// Why an Exit is not known.
const (
	lostReaped = "it was reaped by the supervisor that died, and this system does not tell how it ended"
	lostStart  = "the supervisor died while starting it; if it was started, it ended before it could be told which one it was"
	lostFork   = "the supervisor died while starting it, and its process ended without having executed the program"
)

type kind string

const (
	kindHello    kind = "hello"
	kindRuns     kind = "runs"
	kindEnd      kind = "end"
	kindAck      kind = "ack"
	kindExit     kind = "exit"
	kindFound    kind = "found"
	kindShutdown kind = "shutdown"
	kindReplace  kind = "replace"
	kindRegister kind = "register"
	kindSpawned  kind = "spawned"
	kindWithdraw kind = "withdraw"
	kindSettled  kind = "settled"
	kindReady    kind = "ready"
	kindDone     kind = "done"
	kindRefuse   kind = "refuse"   // no other supervisor could serve either
	kindMarks    kind = "marks"    // from now on every child is born with its run's mark
	kindTrim     kind = "trim"     // close all pipes of a run but the first
	kindStopping kind = "stopping" // the supervisor shuts down because somebody else asked it to
	kindWill     kind = "will"     // what the supervisor needs to succeed the keeper
	kindDemand   kind = "demand"   // the keeper is too old: it is to execute the supervisor's program
)

// A message is every packet's body; which fields count depends on the kind.
type message struct {
	Kind       kind      `json:"kind"`
	Version    int       `json:"version,omitempty"`
	Oldest     int       `json:"oldest,omitempty"`
	Generation int       `json:"generation,omitempty"`
	KeeperPID  int       `json:"keeper_pid,omitempty"`
	Files      []int     `json:"files,omitempty"` // numbers in the supervisor
	Seq        uint64    `json:"seq,omitempty"`   // names what an ack answers
	Count      int       `json:"count,omitempty"` // descriptors received
	Mark       uint64    `json:"mark,omitempty"`  // for the run's command, see Link.Mark
	Error      string    `json:"error,omitempty"` // why it is refused
	Code       int       `json:"code,omitempty"`  // to end with
	ID         string    `json:"id,omitempty"`
	Token      string    `json:"token,omitempty"`
	Pipes      int       `json:"pipes,omitempty"` // descriptors sent along
	PID        int       `json:"pid,omitempty"`
	StartTicks uint64    `json:"start_ticks,omitempty"`
	DeadlineMS int64     `json:"deadline_ms,omitempty"` // from now
	Exe        []byte    `json:"exe,omitempty"`         // bytes: a path need not be UTF-8
	Exit       *exitBody `json:"exit,omitempty"`
	Runs       []runBody `json:"runs,omitempty"`
	Will       *willBody `json:"will,omitempty"`
	Estate     int       `json:"estate,omitempty"` // hello of a keeper that obeys a demand: the format that it writes
	Pidfds     bool      `json:"pidfds,omitempty"` // hello of a supervisor that takes them
}

// A willBody is what a successor of the keeper needs and its supervisor does
// not know otherwise.
type willBody struct {
	Lock     bool              `json:"lock,omitempty"` // its descriptor is sent along
	Exe      []byte            `json:"exe"`
	GoodExe  []byte            `json:"good_exe"`
	Told     bool              `json:"told,omitempty"`
	StopAtNS int64             `json:"stop_at_ns,omitempty"`
	Carry    map[string]string `json:"carry,omitempty"`
}

type runBody struct {
	ID         string    `json:"id"`
	Token      string    `json:"token,omitempty"`
	Pipes      int       `json:"pipes"`
	PID        int       `json:"pid,omitempty"`
	StartTicks uint64    `json:"start_ticks,omitempty"`
	Pending    bool      `json:"pending,omitempty"`
	Exit       *exitBody `json:"exit,omitempty"`
	Mark       uint64    `json:"mark,omitempty"`  // of a pending one
	Pidfd      bool      `json:"pidfd,omitempty"` // sent along, after the pipes
}

// descriptors is how many are sent along.
func (b runBody) descriptors() int {
	if b.Pidfd {
		return b.Pipes + 1
	}
	return b.Pipes
}

type exitBody struct {
	ID       string `json:"id"`
	PID      int    `json:"pid,omitempty"`
	Ticks    uint64 `json:"start_ticks,omitempty"`
	Code     int    `json:"code"`
	Signal   int    `json:"signal,omitempty"`
	Core     bool   `json:"core,omitempty"`
	UserNS   int64  `json:"user_ns,omitempty"`
	SystemNS int64  `json:"system_ns,omitempty"`
	MaxRSS   int64  `json:"max_rss,omitempty"`
	Order    int64  `json:"order"`
	AtNS     int64  `json:"at_ns"` // since 1970
	Lost     string `json:"lost,omitempty"`
}

func toBody(e *Exit) *exitBody {
	if e == nil {
		return nil
	}
	return &exitBody{
		ID: e.ID, PID: e.PID, Ticks: e.StartTicks, Code: e.Code, Signal: int(e.Signal), Core: e.CoreDumped,
		UserNS: int64(e.Usage.User), SystemNS: int64(e.Usage.System), MaxRSS: e.Usage.MaxRSS,
		Order: e.Order, AtNS: e.At.UnixNano(), Lost: e.Lost,
	}
}

func (b *exitBody) exit() *Exit {
	if b == nil {
		return nil
	}
	return &Exit{
		ID: b.ID, PID: b.PID, StartTicks: b.Ticks, Exit: platform.Exit{Code: b.Code, Signal: syscall.Signal(b.Signal), CoreDumped: b.Core},
		Usage: platform.Usage{User: time.Duration(b.UserNS), System: time.Duration(b.SystemNS), MaxRSS: b.MaxRSS},
		Order: b.Order, At: time.Unix(0, b.AtNS), Lost: b.Lost,
	}
}

func encode(m message) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(b) > maxMessage {
		return nil, fmt.Errorf("message %s of %d bytes, at most %d", m.Kind, len(b), maxMessage)
	}
	return b, nil
}

// parse reads one packet and checks what its receiver relies on.
func parse(b []byte) (message, error) {
	var m message
	if err := json.Unmarshal(b, &m); err != nil {
		return message{}, fmt.Errorf("parse message: %w", err)
	}
	if m.Kind == "" {
		return message{}, errors.New("parse message: no kind")
	}
	n := 0
	for _, r := range m.Runs {
		if r.Pipes < 0 || r.Pipes > maxPipes || r.PID < 0 || !validID(r.ID) {
			return message{}, fmt.Errorf("parse message: run %q with %d pipes, pid %d", r.ID, r.Pipes, r.PID)
		}
		n += r.descriptors()
	}
	if n > maxFDs || m.Pipes < 0 || m.Pipes > maxPipes || m.PID < 0 || m.Count < 0 || m.DeadlineMS < 0 {
		return message{}, fmt.Errorf("parse message: %s with a number out of range", m.Kind)
	}
	switch m.Kind {
	case kindRegister, kindSpawned, kindWithdraw, kindSettled, kindFound, kindTrim:
		if !validID(m.ID) || len(m.Token) > maxToken {
			return message{}, fmt.Errorf("parse message: %s with id %q and a token of %d bytes", m.Kind, m.ID, len(m.Token))
		}
	case kindExit:
		if m.Exit == nil || !validID(m.Exit.ID) {
			return message{}, errors.New("parse message: exit of no run")
		}
	}
	if m.Kind == kindSpawned && (m.PID <= 1 || m.StartTicks == 0) {
		return message{}, fmt.Errorf("parse message: spawned with pid %d, start ticks %d", m.PID, m.StartTicks)
	}
	return m, nil
}

// validID: the last element of a token path, so without a slash.
func validID(id string) bool {
	return id != "" && len(id) <= maxID && utf8.ValidString(id) && !strings.ContainsAny(id, "/\x00")
}

// page takes as many runs from the front as fit into one message and returns
// how many that are. size is the length of a run in JSON.
func page(runs []runBody, size func(runBody) int) int {
	const envelope = 256
	n, fds, bytes := 0, 0, envelope
	for _, r := range runs {
		s := size(r) + 1
		if n == maxRuns || fds+r.descriptors() > maxFDs || n > 0 && bytes+s > maxMessage {
			break
		}
		n, fds, bytes = n+1, fds+r.descriptors(), bytes+s
	}
	return n
}

// testProtocol is a number by which tests make a program of another time, which
// speaks that protocol alone; the linker can set it. "" = as above.
var testProtocol string

func protocols() (version, oldest int) {
	if n, err := strconv.Atoi(testProtocol); err == nil {
		return n, n
	}
	return newestProtocol, oldestProtocol
}

// agree picks the protocol that both ends speak: the older one's newest.
func agree(theirs, theirOldest int) (int, error) {
	version, oldest := protocols()
	v := min(version, theirs)
	if v < oldest || v < theirOldest {
		return 0, fmt.Errorf("%w: it speaks protocol %d to %d, we speak %d to %d", ErrProtocol, theirOldest, theirs, oldest, version)
	}
	return v, nil
}
