package keeper

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

const chaosRuns = 600

// chaosRun is what run i does: its output and its code are known.
func chaosRun(i int) (script string, out []byte, code int) {
	lines := 400
	if i%50 == 0 {
		lines = 40_000 // more than a pipe holds
	}
	var b bytes.Buffer
	for n := 1; n <= lines; n++ {
		fmt.Fprintln(&b, n)
	}
	return fmt.Sprintf("seq 1 %d; sleep 0.0%d; exit %d", lines, 4+i%6, i%100), b.Bytes(), i % 100
}

// A chaos supervisor starts the runs that its journal does not know, and takes
// up those that the keeper holds. A line of the journal is written before what
// it says is acted on.
type chaos struct {
	dir     string
	config  string // of the keeper
	link    *Link
	mu      sync.Mutex
	journal *os.File
	ended   map[string]bool
	exits   map[string]chan Exit
	found   map[string]*Found
}

func chaosRole(args []string) int {
	link, h, err := Connect(3)
	if err != nil {
		fmt.Fprintln(os.Stderr, "connect:", err)
		return 95
	}
	c := &chaos{dir: args[0], config: h.Carry["config"], link: link, ended: map[string]bool{}, exits: map[string]chan Exit{}, found: map[string]*Found{}}
	if c.journal, err = os.OpenFile(filepath.Join(c.dir, "journal"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		return 94
	}
	for in := bufio.NewScanner(c.journal); in.Scan(); {
		c.ended[strings.Fields(in.Text())[1]] = true
	}
	var tasks sync.WaitGroup
	held := map[string]bool{}
	for _, r := range h.Runs {
		held[r.ID] = true
		c.exits[r.ID] = make(chan Exit, 1)
	}
	for _, r := range h.Runs {
		if held[r.ID] = c.takeUp(&r); held[r.ID] {
			tasks.Go(func() { c.own(r) })
		}
	}
	go func() { // ends with the process
		for e := range link.Exits() {
			c.exits[e.ID] <- e
		}
		err := link.Succeed("/proc/self/exe", []string{"sup", "role", "heir", c.config})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}()
	conn, _ := net.FileConn(h.Files[0])
	b, _ := json.Marshal(report{Event: "handover", PID: os.Getpid(), Generation: h.Generation, Keeper: h.KeeperPID})
	conn.Write(b)
	_ = link.Ready()
	places := make(chan struct{}, 14)
	for i := range chaosRuns {
		if id := fmt.Sprintf("r%03d", i); !c.ended[id] && !held[id] {
			places <- struct{}{}
			tasks.Go(func() { c.start(id, i); <-places })
		}
	}
	tasks.Wait()
	b, _ = json.Marshal(report{Event: "complete"})
	conn.Write(b)
	_ = link.ShutdownDone()
	return DoneCode
}

func (c *chaos) write(format string, args ...any) {
	if _, err := fmt.Fprintf(c.journal, format+"\n", args...); err != nil {
		os.Exit(8)
	}
}

// takeUp reports whether a run is to be owned; one that was never spawned is
// started again, which would double its output if that were wrong.
func (c *chaos) takeUp(r *Run) bool {
	if c.ended[r.ID] {
		_ = c.link.Settled(r.ID)
		closeFiles(r.Pipes)
		return false
	}
	for ; r.Pending && c.found[r.ID] == nil && len(c.exits[r.ID]) == 0; r.Pending = c.found[r.ID] == nil {
		select {
		case f := <-c.link.Found():
			c.found[f.ID] = &f
		case e := <-c.link.Exits():
			c.exits[e.ID] <- e
		case <-c.link.Gone():
			err := c.link.Succeed("/proc/self/exe", []string{"sup", "role", "heir", c.config})
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
	}
	if f := c.found[r.ID]; f != nil {
		r.PID = f.PID
	}
	if r.PID == 0 && r.Exit == nil && len(c.exits[r.ID]) == 0 {
		_ = c.link.Withdraw(r.ID)
		closeFiles(r.Pipes)
		return false
	}
	return true
}

func (c *chaos) own(r Run) {
	c.pump(r.ID, r.Pipes[0])
	e := r.Exit
	if e == nil {
		got := <-c.exits[r.ID]
		e = &got
	}
	c.end(r.ID, e.Exit, e.Lost)
	_ = c.link.Settled(r.ID)
}

func (c *chaos) end(id string, e platform.Exit, lost string) {
	if lost != "" {
		c.write("lost %s %s", id, lost)
		return
	}
	c.write("end %s %d", id, e.Code)
}

func (c *chaos) start(id string, i int) {
	rd, wr, err := os.Pipe()
	if err != nil {
		os.Exit(7)
	}
	if err := c.link.Register(id, id, descriptors(rd)); err != nil {
		os.Exit(6)
	}
	null, _ := os.Open(os.DevNull)
	script, _, _ := chaosRun(i)
	var pid int
	c.link.Mark(id, func() {
		pid, err = syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
			Env: []string{tokenVar + "=" + id, "PATH=/bin:/usr/bin"}, Files: []uintptr{null.Fd(), wr.Fd(), 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
	})
	if err != nil {
		os.Exit(5)
	}
	ident, _ := platform.Identify(pid)
	_ = c.link.Spawned(id, pid, ident.StartTicks)
	wr.Close()
	null.Close()
	c.pump(id, rd)
	e, err := platform.AwaitExit(pid)
	if err != nil {
		os.Exit(4)
	}
	c.end(id, e, "")
	_, _, _ = platform.Reap(pid)
	_ = c.link.Settled(id)
}

// pump moves the pipe's bytes to the run's file without ever holding one.
func (c *chaos) pump(id string, pipe *os.File) {
	defer pipe.Close()
	out, err := os.OpenFile(filepath.Join(c.dir, id), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		os.Exit(3)
	}
	defer out.Close()
	out.Seek(0, 2)
	rc, _ := pipe.SyscallConn()
	for {
		var n int64
		err := rc.Read(func(fd uintptr) bool {
			var err error
			n, err = unix.Splice(int(fd), nil, int(out.Fd()), nil, 1<<20, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
			return err != unix.EAGAIN
		})
		if err != nil || n <= 0 {
			return
		}
	}
}

// A10, S2-18: the supervisor is killed at random moments under load.
func TestChaos(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, rigConfig{Supervisor: []string{"chaos", dir}})
	r.chaos(func(sup report) int { return sup.PID })
	if code := r.code(); code != 0 {
		t.Errorf("keeper's code %d, want 0", code)
	}
	checkChaos(t, dir)
}

// Now the keeper is killed as often as the supervisor is: who lives goes on.
func TestChaosOfBoth(t *testing.T) {
	if !tellsExits(t) {
		t.Skip("PIDFD_INFO_EXIT needs Linux 6.15: the ends of commands that a killed keeper had adopted are lost")
	}
	dir := t.TempDir()
	r := newRig(t, rigConfig{Supervisor: []string{"chaos", dir}})
	keepers := 0
	r.chaos(func(sup report) int {
		if rand.IntN(2) == 0 {
			keepers++
			return sup.Keeper
		}
		return sup.PID
	})
	awaitEnd(t, r.keeper)
	t.Logf("%d of the kills were keepers", keepers)
	checkChaos(t, dir)
}

// chaos kills whom is said some time after each hand-over, until all is done.
func (r *rig) chaos(whom func(report) int) {
	r.t.Helper()
	const wantKills, maxKills = 20, 30
	began, kills := time.Now(), 0 // kills: as many as hand-overs but the last
	for complete := false; !complete; {
		pid := whom(r.connected())
		timer := time.AfterFunc(20*time.Millisecond+rand.N(150*time.Millisecond), func() {
			syscall.Kill(pid, syscall.SIGKILL)
		})
		if kills > maxKills {
			timer.Stop()
		}
		complete = r.either("complete", "handover")
		timer.Stop()
		kills++
	}
	r.t.Logf("%d kills in %v", kills-1, time.Since(began))
	if kills <= wantKills {
		r.t.Errorf("%d kills, want at least %d", kills-1, wantKills)
	}
}

// either waits for one of two events, and leaves the second for later.
func (r *rig) either(first, second string) bool {
	r.t.Helper()
	for i := 0; ; i++ {
		if i == len(r.later) {
			r.read(first)
		}
		switch r.later[i].Event {
		case first:
			return true
		case second:
			return false
		}
	}
}

func checkChaos(t *testing.T, dir string) {
	t.Helper()
	journal, err := os.ReadFile(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string][]string{}
	for line := range strings.Lines(string(journal)) {
		f := strings.Fields(line)
		ends[f[1]] = append(ends[f[1]], strings.TrimSpace(line))
	}
	for i := range chaosRuns {
		id := fmt.Sprintf("r%03d", i)
		_, out, code := chaosRun(i)
		if got, want := ends[id], fmt.Sprintf("end %s %d", id, code); len(got) != 1 || got[0] != want {
			t.Errorf("ends of %s: %q, want %q once", id, got, want)
		}
		if got, _ := os.ReadFile(filepath.Join(dir, id)); !bytes.Equal(got, out) {
			t.Errorf("output of %s: %d bytes, want %d", id, len(got), len(out))
		}
	}
}
