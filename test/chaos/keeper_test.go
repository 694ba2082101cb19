//go:build linux

package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/supervisor/wire"
)

var keeperKills = flag.Int("keeper-kills", 15, "SIGKILLs of the keeper")

// killKeeper kills the keeper alone and returns once another supervisor answers,
// below a keeper that was the supervisor before.
func (d *daemon) killKeeper(t *testing.T, before *wire.Hello) (back time.Duration) {
	t.Helper()
	if err := unix.Kill(before.KeeperPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for {
		next, err := d.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if next.Generation > before.Generation {
			if next.KeeperPID != before.PID {
				t.Fatalf("keeper %d, want the supervisor that was, %d", next.KeeperPID, before.PID)
			}
			break
		}
	}
	back = time.Since(killed)
	d.buried(before.KeeperPID)
	d.keeper = before.PID
	return back
}

// buried reaps a keeper that is dead: the first is our child, and the others
// are since their keeper died.
func (d *daemon) buried(pid int) int {
	if pid == d.cmd.Process.Pid {
		_ = d.cmd.Wait()
		return d.cmd.ProcessState.ExitCode()
	}
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &ws, 0, nil)
		if err != unix.EINTR {
			return ws.ExitStatus()
		}
	}
}

// S2-18, S4-06: the keeper is killed at random moments while commands start,
// write and end: its supervisor goes on in its place, and nothing is lost,
// doubled or wrong.
func TestKeeperIsKilledUnderLoad(t *testing.T) {
	d := startDaemon(t, shortDir(t))
	ctx, stop := context.WithCancel(t.Context())
	var done, never, unknown, bytes atomic.Int64
	var workers sync.WaitGroup
	ids := make(chan handles.ID, 1<<20)
	for k := range 8 {
		workers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				w := work{n: k*1_000_000 + i, lines: 1 + rand.IntN(400), code: rand.IntN(100)}
				if i%4 == 0 {
					w.slow = true // lives over several kills
				}
				ran, err := d.once(t.Context(), w, ids)
				switch {
				case errors.Is(err, errUnknownEnd):
					unknown.Add(1)
				case err != nil:
					t.Errorf("work %d: %v", w.n, err)
					return
				case ran:
					done.Add(1)
					bytes.Add(int64(len(w.want())))
				default:
					never.Add(1)
				}
			}
		})
	}
	var back []time.Duration
	for range *keeperKills {
		hello, err := d.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		moment := time.NewTimer(rand.N(150 * time.Millisecond)) // the moment is what is random, nothing is waited for
		<-moment.C
		back = append(back, d.killKeeper(t, hello))
	}
	stop()
	workers.Wait()
	close(ids)
	slices.Sort(back)
	t.Logf("%d kills, %d commands with %d bytes, %d starts cut short, %d ends that the kernel did not tell; service back after: median %v, most %v",
		len(back), done.Load(), bytes.Load(), never.Load(), unknown.Load(), back[len(back)/2], back[len(back)-1])
	if unknown.Load() > 0 && kernelTellsEnds(t) {
		t.Errorf("%d exit codes were lost though this kernel tells them", unknown.Load())
	}
	d.eachOnce(t, ids)
}

// kernelTellsEnds: PIDFD_INFO_EXIT is there since Linux 6.15.
func kernelTellsEnds(t *testing.T) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 15
}

// The keeper is killed while a supervisor is replaced or was just killed. If
// that one's successor had taken over, all goes on; otherwise both are dead,
// and the weaker promise holds: see TestBothAreKilledUnderLoad.
func TestKeeperIsKilledDuringRestart(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir)
	survived, died := 0, 0
	for i := range 3 * *rounds {
		c := newCrowd(t, d, i)
		hello, err := d.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_ = unix.Kill(hello.PID, unix.SIGKILL)
		} else if err := d.Replace(t.Context(), procsupd); err != nil {
			t.Fatal(err)
		}
		moment := time.NewTimer(rand.N(80 * time.Millisecond))
		<-moment.C
		_ = unix.Kill(hello.KeeperPID, unix.SIGKILL)
		d.buried(hello.KeeperPID)
		if d.answersAgain(t, hello) {
			survived++
			c.checkAlive(t, d, true)
		} else {
			died++
			d.Close()
			d = startDaemon(t, dir)
			c.checkAlive(t, d, false)
		}
		c.end(t, d)
	}
	t.Logf("%d times the daemon went on, %d times both were dead", survived, died)
}

// answersAgain waits until a keeper other than before's has a supervisor that
// answers, or nobody holds the state lock.
func (d *daemon) answersAgain(t *testing.T, before *wire.Hello) bool {
	t.Helper()
	f, err := os.Open(filepath.Join(d.state(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // an answer is not waited for if nobody is there
		next, err := d.Hello(ctx)
		cancel()
		if err == nil && next.KeeperPID != before.KeeperPID {
			d.keeper = next.KeeperPID
			return true
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			d.keeper = 0
			return false
		}
	}
}

// A crowd is commands in different states, each of which notes that it runs.
type crowd struct {
	dir     string
	lives   []*wire.Started
	enders  []*wire.Started // which end when told to
	session string
}

func newCrowd(t *testing.T, d *daemon, round int) *crowd {
	t.Helper()
	c := &crowd{dir: t.TempDir(), session: fmt.Sprintf("crowd%d", round)}
	for i := range 3 {
		c.lives = append(c.lives, c.start(t, d, fmt.Sprintf("lives%d", i), "exec sleep 600"))
	}
	for i := range 3 {
		c.enders = append(c.enders, c.start(t, d, fmt.Sprintf("ends%d", i), fmt.Sprintf("while [ ! -e %s/end ]; do sleep .01; done; exit %d", c.dir, 3+i)))
	}
	return c
}

func (c *crowd) start(t *testing.T, d *daemon, name, script string) *wire.Started {
	t.Helper()
	req := shell(fmt.Sprintf("echo ran >>%s/%s; %s", c.dir, name, script))
	req.Session, req.Name, req.Idempotency = c.session, name, c.session+name
	a, err := d.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// checkAlive checks that what lives is running under the daemon and that what
// ends is told of: how, if the daemon was never dead.
func (c *crowd) checkAlive(t *testing.T, d *daemon, known bool) {
	t.Helper()
	for _, a := range c.lives {
		rec, err := d.Show(t.Context(), string(a.HandleID))
		if err != nil || rec.Status != handles.Running || rec.PID != a.PID || rec.Liveness != "live" {
			t.Errorf("one that lives: %+v, %v", rec, err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, a := range c.enders {
		w, err := d.Wait(t.Context(), string(a.HandleID), 20*time.Second)
		if err != nil || w.Record == nil {
			t.Errorf("one that ends: %+v, %v", w, err)
			continue
		}
		right := w.Record.ExitCode != nil && *w.Record.ExitCode == 3+i && w.Record.Status == handles.Failed
		if !right && (known && kernelTellsEnds(t) || w.Record.Status != handles.Lost || w.Record.Error == "") {
			t.Errorf("one that ends (known %v): %s %q %v", known, w.Record.Status, w.Record.Error, w.Record.ExitCode)
		}
	}
}

// end ends the crowd and checks that none was run twice.
func (c *crowd) end(t *testing.T, d *daemon) {
	t.Helper()
	for _, a := range c.lives {
		if r, err := d.Cancel(t.Context(), string(a.HandleID), wire.Cancel{}); err != nil || !r.Record.Status.Terminal() {
			t.Errorf("cancel: %+v, %v", r, err)
		}
		if !waitGone(a.PID, 5*time.Second) {
			t.Errorf("%d is left", a.PID)
		}
	}
	files, _ := filepath.Glob(filepath.Join(c.dir, "*s[0-9]"))
	for _, f := range files {
		if text, _ := os.ReadFile(f); strings.Count(string(text), "ran") > 1 {
			t.Errorf("%s was run twice", filepath.Base(f))
		}
	}
}
