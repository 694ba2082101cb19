//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// descriptors counts what a process has open.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	es, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(es)
}

// settlesAt waits until a process has at most so many descriptors again.
func settlesAt(t *testing.T, what string, pid, most int) {
	t.Helper()
	if !waitFor(5*time.Second, func() bool { return descriptors(t, pid) <= most }) {
		out, _ := exec.Command("ls", "-l", fmt.Sprintf("/proc/%d/fd", pid)).CombinedOutput()
		t.Errorf("the %s has %d descriptors, %d before:\n%s", what, descriptors(t, pid), most, out)
	}
}

// limited starts a daemon under a limit of descriptors.
func limited(t *testing.T, n int) *daemon {
	t.Helper()
	sh := filepath.Join(t.TempDir(), "procsupd")
	if err := os.WriteFile(sh, fmt.Appendf(nil, "#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", n, procsupd), 0o755); err != nil {
		t.Fatal(err)
	}
	return startDaemonOf(t, sh, shortDir(t))
}

func limitOf(t *testing.T, pid int, n uint64) {
	t.Helper()
	var old unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old)
	if err == nil { // the hard limit could not be raised again
		err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// outOfDescriptors reports whether a start was refused, or failed before its
// spawn, for that reason and said so.
func outOfDescriptors(a *wire.Started, err error) bool {
	if err != nil {
		return errors.Is(err, handles.ErrFull) && strings.Contains(err.Error(), "RLIMIT_NOFILE") ||
			errors.Is(err, handles.ErrPersistence) && strings.Contains(err.Error(), "too many open files")
	}
	return a.PID == 0 && a.SpawnError != nil && (a.SpawnError.Errno == "EMFILE" || strings.Contains(a.Error, "RLIMIT_NOFILE"))
}

// A24: a daemon with 64 descriptors. Starts beyond them are refused and name the
// limit; none is half started; what runs keeps its output; nothing leaks; it works
// again afterwards.
func TestA24_FewDescriptors(t *testing.T) {
	d := limited(t, 64)
	d.ends(t, d.must(t, shell("exit 0")).HandleID)
	hello, err := d.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keeper, sup := descriptors(t, d.cmd.Process.Pid), descriptors(t, hello.PID)
	goes := filepath.Join(t.TempDir(), "go")
	var run []*wire.Started
	refused := 0
	for i := range 60 {
		a, err := d.Start(t.Context(), shell(fmt.Sprintf(`while [ ! -e %s ]; do echo %d; sleep .02; done; exit 3`, goes, i)))
		switch {
		case err == nil && a.PID != 0:
			run = append(run, a)
		case outOfDescriptors(a, err):
			refused++
		default:
			t.Fatalf("start %d: %+v, %v", i, a, err)
		}
	}
	if len(run) < 4 || refused == 0 {
		t.Errorf("%d run, %d were refused", len(run), refused)
	}
	if err := os.WriteFile(goes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, a := range run {
		rec := d.ends(t, a.HandleID)
		if rec.ExitCode == nil || *rec.ExitCode != 3 {
			t.Errorf("%+v", rec)
		}
		b, err := os.ReadFile(a.StdoutPath)
		if want := fmt.Sprintf("%d\n", i); err != nil || int64(len(b)) != rec.Output.Stdout.Bytes || rec.Output.Stdout.Omitted != nil || strings.Trim(string(b), want) != "" {
			t.Errorf("output of %d: %d bytes, %v, %+v", i, len(b), err, rec.Output.Stdout)
		}
	}
	d.worksAgain(t)
	settlesAt(t, "keeper", d.cmd.Process.Pid, keeper)
	settlesAt(t, "supervisor", hello.PID, sup)
	if after, err := d.Hello(t.Context()); err != nil || after.Generation != hello.Generation || after.Live != 0 {
		t.Errorf("%+v, %v", after, err)
	}
}

// The limit of the keeper, or of the supervisor, is lowered while they run: starts
// are refused, what runs goes on and its end is told; with the limit raised again
// all works. A supervisor that dies meanwhile loses nothing.
func TestA24_LimitLoweredWhileRunning(t *testing.T) {
	for _, who := range []string{"keeper", "supervisor"} {
		t.Run(who, func(t *testing.T) {
			d := startDaemon(t, shortDir(t))
			goes := filepath.Join(t.TempDir(), "go")
			var run []*wire.Started
			for range 8 {
				run = append(run, d.must(t, shell(`while [ ! -e `+goes+` ]; do sleep .02; done; echo done; exit 3`)))
			}
			hello, err := d.Hello(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pid := hello.PID
			if who == "keeper" {
				pid = d.cmd.Process.Pid
			}
			keeper, sup := descriptors(t, d.cmd.Process.Pid), descriptors(t, hello.PID)
			limitOf(t, pid, uint64(descriptors(t, pid)))
			for range 20 {
				if a, err := d.Start(t.Context(), shell("exit 0")); !outOfDescriptors(a, err) && !(who == "keeper" && strings.Contains(fmt.Sprint(a), "RLIMIT_NOFILE")) {
					t.Fatalf("%+v, %v", a, err)
				}
			}
			settlesAt(t, "keeper", d.cmd.Process.Pid, keeper)
			settlesAt(t, "supervisor", hello.PID, sup)
			limitOf(t, pid, 4096)
			_ = syscall.Kill(hello.PID, syscall.SIGKILL)
			d.nextGeneration(t, hello.Generation)
			if err := os.WriteFile(goes, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, a := range run {
				if rec := d.ends(t, a.HandleID); rec.ExitCode == nil || *rec.ExitCode != 3 || rec.Output.Stdout.Bytes != 5 {
					t.Errorf("%+v", rec)
				}
			}
			d.worksAgain(t)
		})
	}
}

// A supervisor whose descriptors do not suffice to take all up loses none of the
// runs for it: it ends, the keeper holds them and says why, and whoever has more
// descriptors gets them all.
func TestA24_TooFewForARecovery(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir)
	var run []*wire.Started
	for range 20 {
		run = append(run, d.must(t, shell("exec sleep 610")))
	}
	hello, err := d.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keeper := d.cmd.Process.Pid
	n := uint64(descriptors(t, hello.PID) - 10) // its children inherit it: the pipes fit, not all pidfds
	if err := unix.Prlimit(keeper, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(hello.PID, syscall.SIGKILL)
	log := filepath.Join(d.dir, "log")
	if !waitFor(20*time.Second, func() bool {
		b, _ := os.ReadFile(log)
		return strings.Contains(string(b), "supervisors die before they are ready") && strings.Contains(string(b), "too many open files")
	}) {
		t.Fatal("no crash loop")
	}
	for _, a := range run {
		if !alive(a.PID) {
			t.Errorf("%s has died", a.HandleID)
		}
	}
	_ = unix.Kill(keeper, unix.SIGKILL) // its limit cannot be raised again
	d.buried(keeper)
	d.keeper = 0
	d.Close()
	d = startDaemon(t, dir)
	for _, a := range run {
		if rec, err := d.Show(t.Context(), string(a.HandleID)); err != nil || rec.Status != handles.Running || rec.PID != a.PID {
			t.Errorf("%+v, %v", rec, err)
		}
		if _, err := d.Cancel(t.Context(), string(a.HandleID), wire.Cancel{NoWait: true}); err != nil {
			t.Error(err)
		}
	}
	for _, a := range run {
		d.ends(t, a.HandleID)
	}
	d.worksAgain(t)
}

// 500 clients that connect and say nothing keep nobody out, also of a daemon with
// few descriptors, and take nothing from the commands.
func TestSilentClients(t *testing.T) {
	for _, limit := range []int{64, 0} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			var d *daemon
			if limit == 0 {
				d = startDaemon(t, shortDir(t))
			} else {
				d = limited(t, limit)
			}
			hello, err := d.Hello(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			before := descriptors(t, hello.PID)
			for range 500 {
				c, err := net.DialTimeout("unix", d.socket(), 10*time.Second)
				if errors.Is(err, unix.EAGAIN) { // the backlog is full of them
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
			}
			began := time.Now()
			d.worksAgain(t)
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("they held it up for %v", took)
			}
			few := waitFor(5*time.Second, func() bool { // the next to come pushes the oldest out
				if c, err := net.Dial("unix", d.socket()); err == nil {
					c.Close()
				}
				return descriptors(t, hello.PID) <= before+260
			})
			if !few {
				t.Errorf("%d descriptors, %d before", descriptors(t, hello.PID), before)
			}
		})
	}
}

// Clients that connect and go away, before, in the middle of or after a request,
// leave nothing behind.
func TestA24_ClientsThatGoAway(t *testing.T) {
	d := startDaemon(t, shortDir(t))
	a := d.must(t, shell("exec sleep 611"))
	hello, err := d.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keeper, sup := descriptors(t, d.cmd.Process.Pid), descriptors(t, hello.PID)
	for i := range 300 {
		c, err := net.Dial("unix", d.socket())
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"", "GET /v1/he", "GET /v1/handles/" + string(a.HandleID) + "/wait HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v1/hello HTTP/1.1\r\nHost: x\r\n\r\n"}[i%4 : i%4+1] {
			if _, err := c.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
	}
	settlesAt(t, "keeper", d.cmd.Process.Pid, keeper)
	settlesAt(t, "supervisor", hello.PID, sup)
	d.worksAgain(t)
}

// A client without descriptors says so and leaves nothing half done.
func TestA24_ClientWithoutDescriptors(t *testing.T) {
	d := startDaemon(t, shortDir(t))
	said := false
	for n := 3; n < 12; n++ {
		cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("ulimit -n %d; exec %s start --socket %s -- true", n, procsup, d.socket()))
		cmd.Env = append(os.Environ(), "PROCSUP_STATE="+d.state())
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		if strings.Contains(string(out), "too many open files") || strings.Contains(string(out), "EMFILE") {
			said = true
		} else if strings.HasPrefix(string(out), "procsup:") {
			t.Errorf("with %d descriptors: %s", n, out)
		} // else not even the program could be loaded
	}
	t.Logf("a client has said so: %v", said)
	d.worksAgain(t)
}
