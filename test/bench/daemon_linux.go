package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// A daemon is a procsup daemon with a state directory of its own.
type daemon struct {
	*client.Client
	dir  string
	cmd  *exec.Cmd
	up   time.Duration // from exec to ready
	link []*client.Client
}

// daemon starts one in dir, which is made if it is "", and returns once it
// answers.
func (l *lab) daemon(dir string) (*daemon, error) {
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp(l.dir, "d"); err != nil {
			return nil, err
		}
	}
	d := &daemon{dir: dir}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.Command(l.procsupd, "--socket", d.socket(), "--state", d.state(), "--ready-fd", "3", "--session-limit", "100000")
	d.cmd.ExtraFiles, d.cmd.Stderr = []*os.File{w}, log
	start := time.Now()
	err = d.cmd.Start()
	w.Close()
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	d.up = time.Since(start)
	if line != "ready\n" {
		d.cmd.Process.Kill()
		d.cmd.Wait()
		return nil, fmt.Errorf("the daemon said %q, %v", line, err)
	}
	d.Client = client.New(client.Config{Socket: d.socket(), State: d.state(), Patience: 20 * time.Second})
	return d, nil
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "s") }
func (d *daemon) state() string  { return filepath.Join(d.dir, "state") }

// connection is the i-th connection of its own.
func (d *daemon) connection(i int) *client.Client {
	for len(d.link) <= i {
		d.link = append(d.link, client.New(client.Config{Socket: d.socket(), State: d.state()}))
	}
	return d.link[i]
}

// stop ends the daemon with all that it runs.
func (d *daemon) stop() error {
	for _, c := range append(d.link, d.Client) {
		c.Close()
	}
	d.cmd.Process.Signal(syscall.SIGTERM)
	return d.cmd.Wait()
}

// pids are those of the supervisor and of the keeper.
func (d *daemon) pids() (supervisor, keeper int, err error) {
	h, err := d.Hello(context.Background())
	if err != nil {
		return 0, 0, err
	}
	return h.PID, h.KeeperPID, nil
}

// cpu is what both processes have used.
func (d *daemon) cpu() (time.Duration, error) {
	supervisor, keeper, err := d.pids()
	return processCPU(supervisor) + processCPU(keeper), err
}

// small is a start with a small environment.
func small(argv ...string) wire.Start {
	return wire.Start{Command: argv, Env: []string{"PATH=/usr/bin:/bin"}}
}

// processCPU is the CPU time of another process, to the nanosecond: its clock
// has the number that clock_getcpuclockid(3) computes.
func processCPU(pid int) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// status is a field of /proc/PID/FILE that has a line "NAME: N".
func status(pid int, file, name string) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}

func descriptors(pid int) int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries)
}

// switches counts how often the threads of a process gave up the CPU or were
// put off it: none means that none ran.
func switches(pid int) (n int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range tasks {
		file := "task/" + t.Name() + "/status"
		n += status(pid, file, "voluntary_ctxt_switches") + status(pid, file, "nonvoluntary_ctxt_switches")
	}
	return n
}

// finished makes a state directory in dir whose journal has n runs that ended,
// each with the three entries that a real one has.
func finished(dir string, n int) error {
	j, err := journal.Open(filepath.Join(dir, "state"), journal.Options{})
	if err != nil {
		return err
	}
	seq := int64(0)
	spec := []byte(`{"command":["true"],"env":["PATH=/usr/bin:/bin"],"session":"default","lease":"service"}`)
	for i := range n {
		id := string(handles.NewID())
		var last *journal.Commit
		for k, kind := range []string{"admitted", "spawned", "ended"} {
			seq++
			status := []string{"starting", "running", "completed"}[k]
			rec := fmt.Appendf(nil, `{"handle_id":%q,"kind":"handle","session_id":"default","command":["true"],"command_or_op_descriptor":"true","dir":"/","status":%q,"exit_code":0,"pid":%d,"process_group_id":%d,"started_at":"2026-01-01T00:00:00Z","ended_at":"2026-01-01T00:00:01Z","duration_ms":1000,"lease":"service","lifetime":"session","delivery":"not_applicable","output":{"stdout":{"path":"/x/%[1]s/stdout","bytes":0},"stderr":{"path":"/x/%[1]s/stderr","bytes":0},"complete":true},"revision":%[5]d,"seq":%[6]d}`,
				id, status, 1000+i, 1000+i, k+1, seq)
			body := append(append([]byte(`{"record":`), rec...), '}')
			run := journal.Run{ID: id, Session: "default", Status: status, Live: kind != "ended", Revision: int64(k + 1), Seq: seq, Record: rec}
			b := journal.Batch{Must: true}
			if kind == "admitted" {
				run.Spec = spec
				random := fmt.Sprintf("%032x", uint64(i)*0x9e3779b97f4a7c15)
				b.Keys = []journal.Key{{Key: random, Fingerprint: "f", Run: id}}
			}
			b.Entries, b.Runs = []journal.Entry{{Seq: seq, Kind: kind, Run: id, Body: body}}, []journal.Run{run}
			last = j.Submit(b)
		}
		if i%500 == 499 || i == n-1 {
			if err := last.Wait(); err != nil {
				return err
			}
		}
	}
	return j.Close()
}

// full is a state directory with 100,000 finished records, made once a run; each
// caller gets a copy.
func (l *lab) full() (string, error) {
	master := filepath.Join(l.dir, "full")
	if _, err := os.Stat(master); err != nil {
		if err := os.Mkdir(master, 0o700); err != nil {
			return "", err
		}
		if err := finished(master, *records); err != nil {
			return "", err
		}
	}
	dir, err := os.MkdirTemp(l.dir, "d")
	if err != nil {
		return "", err
	}
	return dir, os.CopyFS(filepath.Join(dir, "state"), os.DirFS(filepath.Join(master, "state")))
}

// quantile of what was measured, 0 for nothing.
func quantile(v []time.Duration, q float64) time.Duration {
	if len(v) == 0 {
		return 0
	}
	v = sorted(v)
	return v[min(len(v)-1, int(q*float64(len(v))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d.Nanoseconds())/1e6) }
