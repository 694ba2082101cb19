// Package keeper is the process that outlives supervisors, and the
// supervisor's end of the socket between the two.
//
// The keeper is the supervisor's parent and a child subreaper, and holds a
// second descriptor of every captured pipe. When its supervisor dies the
// commands become its children, their pipes stay open, and the next supervisor
// is handed all of it: descriptors, process numbers, and how those that ended
// meanwhile did. It knows no policy, opens no socket path and writes no file;
// while a supervisor lives it sleeps.
package keeper

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"procsup/platform"
)

var (
	// ErrRefused says that the keeper did not take a registration and holds
	// nothing of it. The start must be refused too.
	ErrRefused = errors.New("the keeper refused")
	// ErrGone says that the other end of the socket is closed: the keeper died.
	ErrGone = errors.New("the keeper is gone")
	// ErrProtocol says that the other end is not a keeper, or not one that this
	// supervisor can talk to.
	ErrProtocol = errors.New("not a keeper this supervisor can talk to")
	// ErrDescriptors says that a hand-over could not be taken because this
	// process has no descriptors left for it. The keeper still has them.
	ErrDescriptors = errors.New("too few descriptors for the hand-over (RLIMIT_NOFILE)")
)

// DoneCode is what a supervisor exits with after [Link.ShutdownDone].
const DoneCode = 0

// A Config is what a keeper process needs. Supervisor alone is enough.
type Config struct {
	// Supervisor is the argument vector of the supervisor process. It is started
	// in a process group of its own; its descriptor 3 is the socket, see Connect.
	Supervisor []string
	// Exe is the program to execute; "" = /proc/self/exe. Link.Replace sets
	// another one for later supervisors.
	Exe string
	// Lock is the state directory's lock. It is held as long as the keeper
	// lives and never passed on.
	Lock *os.File
	// Files are passed to every supervisor, from descriptor 4 up.
	Files []*os.File
	// Ready is called once, when a supervisor reports ready for the first time.
	Ready func()
	// Refused is called with the reason when the first supervisor said that it
	// cannot serve, see Link.Refuse, and nothing is held: Keep then returns its
	// code.
	Refused func(why string)
	// Stage is called when what Stage says of the daemon changes; nil = nobody
	// wants to know.
	Stage func(Stage)
	// Beat is called every Pulse as long as this process does its work; 0 = never.
	Beat  func()
	Pulse time.Duration
	// Carry is given to supervisors, and by them to a successor of this keeper.
	Carry map[string]string
	// Estate is what a keeper before this one left, from OpenEstate; nil = this
	// is the first. Lock, Files and Carry are to be set to those of it.
	Estate *Estate
	// Heir is the argument vector with which a newer program goes on as this
	// keeper, when its supervisor demands a newer protocol; the number for
	// OpenEstate is added. nil = such a supervisor is refused.
	Heir []string
	// ReplaceOnHUP makes SIGHUP ask for another supervisor, as SIGUSR2 does,
	// instead of a shutdown.
	ReplaceOnHUP bool
	// Log gets why supervisors died, and what else an operator should know;
	// nil drops it.
	Log *slog.Logger
	// Retry is how long the keeper waits after five supervisors in a row died
	// before they were ready; 0 = 30 s. SIGUSR1 ends the wait.
	Retry time.Duration
	// Grace is how long a shutdown may take from TERM, INT or HUP on; 0 = 30 s.
	// Then supervisor and commands are killed.
	Grace time.Duration
}

// A Descriptor is an open file of the supervisor's that the keeper has a second
// descriptor of. Control calls f with its number, which stays what it is
// meanwhile; once it is closed Control fails.
type Descriptor interface {
	Control(f func(fd uintptr)) error
}

// A Stage is how the daemon as a whole is doing.
type Stage int

// The stages.
const (
	Serving    Stage = iota // a supervisor is ready, also each time after another stage
	Replacing               // a supervisor makes place for another
	Recovering              // a supervisor died
	Waiting                 // none gets ready; the next try is after Retry
	Stopping                // a shutdown was asked for
)

// An Exit is how a command ended that had become the keeper's child.
type Exit struct {
	ID         string
	PID        int // 0: none is known
	StartTicks uint64
	platform.Exit
	Usage platform.Usage
	Order int64     // the order in which the keeper saw ends, over all supervisors, from 1
	At    time.Time // when it saw this one
	Lost  string    // why Exit is not known; "" when it is
}

// A Run is what the keeper holds of one registered run. The pipes belong to
// whoever received it.
type Run struct {
	ID, Token string
	Pipes     []*os.File // in the order they were registered
	PID       int
	// StartTicks is 0 when no process is known of: it was never spawned, unless
	// Exit (lost) or Pending says that this is not sure.
	StartTicks uint64
	// Exit is set when the command has ended. It stays an unreaped zombie, so
	// its number and its group's stay taken, until Settled.
	Exit *Exit
	// Pidfd names the command if the keeper is not its parent, as it succeeded a
	// keeper that was: then only this tells it from others of its number. nil
	// otherwise.
	Pidfd *os.File
	// Pending: a child of the dead supervisor has not executed its program yet.
	// Whether it is this run's comes as a Found, or as a lost Exit.
	Pending bool
}

// A Handover is what a supervisor starts from.
type Handover struct {
	Generation int // supervisors since the keeper started, this one included
	KeeperPID  int
	Version    int        // of the protocol that was agreed
	Runs       []Run      // in the order they were registered
	Files      []*os.File // Config.Files, in their order
	// Carry is Config.Carry, not nil if this process could succeed the keeper.
	Carry map[string]string
}

// A Request is what the keeper asks its supervisor for: to go away. It may come
// before this one is ready.
type Request struct {
	// Replace: exit in order without ending commands, another supervisor is
	// started; it stands for SIGUSR2 to the keeper. Otherwise it is a shutdown:
	// end all that is to be ended by Deadline, see Link.ShutdownDone.
	Replace  bool
	Exe      string // of Replace: what to pass to Link.Replace
	Deadline time.Time
}

// A Found says what became of a pending run: its command lives or has ended
// (then an Exit comes too), or, with PID 0, it was never spawned.
type Found struct {
	ID         string
	PID        int
	StartTicks uint64
}
