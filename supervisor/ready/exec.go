package ready

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"procsup/pgroup"
	"procsup/platform"
)

// execTime bounds one run of a command.
const execTime = 10 * time.Second

// tryExec runs a command by the shell in a session of its own and wants it to
// succeed. What it started is ended with it, however it ends: its whole tree where
// this process adopts orphans, else its group.
func (p *Place) tryExec(ctx context.Context, command string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	said := &lastLine{}
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(said, r) }) // ends with the deadline below, at the latest
	level := pgroup.Grp
	if p.Subreaper != nil {
		level = pgroup.Tree
	}
	g, err := pgroup.Start(pgroup.Command{
		Path: "/bin/sh", Args: []string{"sh", "-c", command}, Dir: p.Dir, Env: p.Env, Stdout: w, Stderr: w, Session: true, ParentDeathSignal: syscall.SIGKILL,
	}, pgroup.Config{Containment: level, Subreaper: p.Subreaper, Mark: true})
	w.Close()
	var end pgroup.End
	if err == nil {
		end, err = await(ctx, g)
	}
	_ = r.SetReadDeadline(time.Now().Add(lastWords)) // its group is dead; who left it may hold the pipe
	reading.Wait()
	r.Close()
	switch {
	case err != nil:
		return err
	case end.Signal != 0:
		return errors.New("ended by " + platform.SignalName(end.Signal))
	case end.Code != 0:
		return fmt.Errorf("exit %d%s", end.Code, said)
	}
	return nil
}

// lastWords bounds the wait for the end of what the command wrote.
const lastWords = 50 * time.Millisecond

// await waits for the end of the command, ends what is left of it, and reaps it.
// One signal to a group costs no look at every process there is.
func await(ctx context.Context, g *pgroup.Group) (pgroup.End, error) {
	limit := time.NewTimer(execTime)
	defer limit.Stop()
	var late error
	select {
	case <-g.Done():
	case <-limit.C:
		late = fmt.Errorf("it ran longer than %v", execTime)
	case <-ctx.Done():
		late = context.Cause(ctx)
	}
	if g.Containment() == pgroup.Tree {
		g.Stop(pgroup.Ladder{Signal: syscall.SIGKILL, Grace: -1}, nil)
	} else {
		_ = g.Signal(syscall.SIGKILL) // the leader pins its number until Reap
	}
	<-g.Done()
	end, err := g.Reap()
	if late != nil {
		err = late
	}
	return end, err
}

// lastLine keeps the end of what a command wrote.
type lastLine struct {
	mu  sync.Mutex
	buf []byte
}

func (l *lastLine) Write(p []byte) (int, error) {
	const most = 256
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if over := len(l.buf) - most; over > 0 {
		l.buf = l.buf[over:]
	}
	return len(p), nil
}

// String is ": " and the last line; "" for none.
func (l *lastLine) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.TrimSpace(strings.ToValidUTF8(string(l.buf), "\ufffd"))
	if s = s[strings.LastIndexByte(s, '\n')+1:]; s == "" {
		return ""
	}
	return ": " + s
}
