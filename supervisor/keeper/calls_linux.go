package keeper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"procsup/platform"
)

// Register gives the keeper a second descriptor of each pipe of a run that is
// about to be spawned. token is what its command will have in PROCSUP_RUN; id
// is that path's last element. ErrRefused: the keeper holds nothing of it and
// the run must not be spawned. The pipes stay the caller's, and are asked for
// when the keeper has died: one that is closed then is handed on as one at its
// end. When the keeper is dead and can be succeeded it returns only if Succeed
// fails: what was not registered is no failed start, it is one that was cut short.
func (l *Link) Register(id, token string, pipes []Descriptor) error {
	return l.RegisterMarked(id, token, 0, pipes)
}

// RegisterMarked is Register of a run whose command is to have this mark, which
// nothing else has; 0: the keeper takes one. An older keeper takes its own.
func (l *Link) RegisterMarked(id, token string, mark uint64, pipes []Descriptor) error {
	if !validID(id) || len(token) > maxToken || !utf8.ValidString(token) || len(pipes) > maxPipes {
		return fmt.Errorf("register %.200q with %d pipes: %w", id, len(pipes), os.ErrInvalid)
	}
	fds := make([]int, len(pipes))
	for i, d := range pipes {
		if err := d.Control(func(fd uintptr) { fds[i] = int(fd) }); err != nil {
			return fmt.Errorf("register %s: pipe %d: %w", id, i, err)
		}
	}
	run := &mirrored{token: token, since: platform.NowTicks(), pipes: slices.Clone(pipes), own: -1}
	answer := make(chan message, 1)
	l.mu.Lock()
	l.seq++
	m := message{Kind: kindRegister, Seq: l.seq, ID: id, Token: token, Pipes: len(pipes), Mark: mark}
	l.waiting[m.Seq] = answer
	l.mu.Unlock()
	err := l.say(m, fds) // they stay open: the caller waits
	if err == nil {
		err = l.await(id, answer, run)
	}
	if err != nil {
		l.mu.Lock()
		delete(l.waiting, m.Seq)
		l.mu.Unlock()
		if errors.Is(err, ErrGone) {
			l.awaitSuccession()
		}
		return fmt.Errorf("register %s: %w", id, err)
	}
	return nil
}

// HoldPipe says that a run's i-th pipe is p from now on, another descriptor of it.
func (l *Link) HoldPipe(id string, i int, p Descriptor) {
	l.update(func(m *mirror) {
		if r := m.runs[id]; r != nil && i < len(r.pipes) {
			r.pipes[i] = p
		}
	})
}

// HoldPidfd gives the pidfd of an adopted run's command, which stays the caller's
// until the run is settled.
func (l *Link) HoldPidfd(id string, pidfd Descriptor) {
	l.update(func(m *mirror) {
		if r := m.runs[id]; r != nil && r.adopted {
			r.drop()
			r.pidfd = pidfd
		}
	})
}

func (l *Link) await(id string, answer <-chan message, run *mirrored) error {
	select {
	case m := <-answer:
		if m.Error != "" || m.Count != len(run.pipes) {
			return fmt.Errorf("%w: %s", ErrRefused, m.Error)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.marks[id], run.mark = m.Mark, m.Mark
		l.mirror.add(id, run)
		return nil
	case <-l.gone:
		return ErrGone
	}
}

// Mark runs start, which spawns a registered run's command and returns once it
// has executed, so that the command can be told from all others whatever
// becomes of it and of this process before Spawned. Use it for all spawns or for
// none; without it, a command that ends just as its supervisor dies may be lost.
// Calls wait for each other. A nil Link runs start.
func (l *Link) Mark(id string, start func()) {
	if l == nil {
		start()
		return
	}
	l.mu.Lock()
	mark, tell := l.marks[id], !l.marked
	delete(l.marks, id)
	l.mu.Unlock()
	switch {
	case mark == 0: // an older keeper
		start()
		return
	case tell && platform.MarkChildren(mark, func() {}):
		if l.say(message{Kind: kindMarks}, nil) == nil {
			l.mu.Lock()
			l.marked = true
			l.mu.Unlock()
		}
	}
	platform.MarkChildren(mark, start)
}

// Spawned tells which process a registered run's command is. It is to be called
// at once after the spawn and needs no answer: the message outlives this
// process.
func (l *Link) Spawned(id string, pid int, startTicks uint64) error {
	l.update(func(m *mirror) { m.spawned(id, pid, startTicks) })
	return l.tell("spawned "+id, message{Kind: kindSpawned, ID: id, PID: pid, StartTicks: startTicks})
}

// Trim makes the keeper close all but the first n pipes of a run: as long as
// it has a write end of the command's stdin that does not end.
func (l *Link) Trim(id string, n int) error {
	l.update(func(m *mirror) { m.trim(id, n) })
	return l.tell("trim "+id, message{Kind: kindTrim, ID: id, Pipes: n})
}

// Withdraw makes the keeper forget a run that could not be spawned.
func (l *Link) Withdraw(id string) error {
	l.update(func(m *mirror) { m.forget(id) })
	return l.tell("withdraw "+id, message{Kind: kindWithdraw, ID: id})
}

// Settled says that the end of a run is recorded: the keeper closes its pipes
// and, if it is the command's parent, frees the number.
func (l *Link) Settled(id string) error {
	l.update(func(m *mirror) { m.forget(id) })
	return l.tell("settled "+id, message{Kind: kindSettled, ID: id})
}

// Ready says that this supervisor serves.
func (l *Link) Ready() error {
	l.update(func(m *mirror) { m.ready = true })
	return l.tell("ready", message{Kind: kindReady})
}

// Refuse says that this supervisor ends before it was ready, and that another
// would do the same until somebody changes something. If none was ready yet and
// nothing is held, the keeper ends with the code.
func (l *Link) Refuse(code int, why string) error {
	const most = 4 << 10 // of a message
	if len(why) > most {
		why = strings.ToValidUTF8(why[:most], "")
	}
	return l.tell("refuse", message{Kind: kindRefuse, Code: code, Error: why})
}

// Replace makes the next supervisor execute exe, "" = the same program, and
// says that the death of this one, which must follow, is no crash.
func (l *Link) Replace(exe string) error {
	l.update(func(m *mirror) { m.exe = []byte(exe) })
	return l.tell("replace", message{Kind: kindReplace, Exe: []byte(exe)})
}

// Stopping says that this supervisor was asked by others to end everything.
func (l *Link) Stopping() error { return l.tell("stopping", message{Kind: kindStopping}) }

// ShutdownDone says that all is ended and recorded. When this supervisor then
// exits with DoneCode, the keeper ends with code 0.
func (l *Link) ShutdownDone() error { return l.tell("shutdown done", message{Kind: kindDone}) }

func (l *Link) tell(what string, m message) error {
	if err := l.say(m, nil); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Exits gives the ends of adopted commands that were not in the hand-over, in
// the order in which the keeper saw them. It is closed when the keeper is gone, and by Close.
func (l *Link) Exits() <-chan Exit { return l.exits.out }

// Found gives what became of pending runs. It is closed as Exits is.
func (l *Link) Found() <-chan Found { return l.found.out }

// Requests gives what the keeper asks for. It is never closed.
func (l *Link) Requests() <-chan Request { return l.requests.out }

// Gone is closed when the keeper has died, or Close was called.
func (l *Link) Gone() <-chan struct{} { return l.gone }
