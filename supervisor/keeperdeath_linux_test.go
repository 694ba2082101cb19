package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/keeper"
	"procsup/supervisor/wire"
)

// roleVar makes TestDaemonRole the keeper or the supervisor of a daemon of one
// run; its arguments are who it is, the state directory and the hook at which
// the run's supervisor waits for ever.
const roleVar = "SUPERVISOR_TEST_ROLE"

func roleArgs(args ...string) []string {
	return append([]string{"sup", "-test.run=^TestDaemonRole$", "--"}, args...)
}

func TestDaemonRole(t *testing.T) {
	if os.Getenv(roleVar) == "" {
		t.Skip("this is a helper process")
	}
	args := flag.Args()
	cfg := keeper.Config{
		Supervisor: roleArgs("supervisor", args[1], args[2]), Heir: roleArgs("heir", args[1], args[2]), Exe: "/proc/self/exe",
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	switch args[0] {
	case "keeper":
		lock, err := journal.Lock(args[1])
		if err != nil {
			t.Fatal(err)
		}
		platform.SetCloexec(3)
		cfg.Lock, cfg.Files = lock, []*os.File{os.NewFile(3, "reports")}
		os.Exit(keeper.Keep(context.Background(), cfg))
	case "heir":
		fd, _ := strconv.Atoi(args[3])
		e, err := keeper.OpenEstate(fd)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Lock, cfg.Files, cfg.Estate = e.Lock, e.Files, e
		os.Exit(keeper.Keep(context.Background(), cfg))
	}
	os.Exit(oneRun(args[1], args[2]))
}

// A oneReport is a line that the supervisor says to the test.
type oneReport struct {
	At     string // the hook that was reached
	Gen    int
	PID    int
	Keeper int
	Record *handles.Record
	Kinds  []string // of the run's entries in the journal
	Output string
}

// oneRun is the supervisor: the first starts a run, the next ones wait for its end.
func oneRun(dir, point string) int {
	link, h, err := keeper.Connect(3)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 95
	}
	say := func(r oneReport) {
		r.Gen, r.PID, r.Keeper = h.Generation, os.Getpid(), h.KeeperPID
		b, _ := json.Marshal(r)
		_, _ = h.Files[0].Write(append(b, '\n'))
	}
	cfg := Config{Dir: dir, Keeper: link, Handover: h, Exclusive: true, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if h.Generation == 1 {
		cfg.Hooks = &Hooks{At: func(at string, _ handles.ID) {
			if at == point {
				say(oneReport{At: at})
				select {}
			}
		}}
	}
	s, err := Open(context.Background(), cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 94
	}
	_ = link.Ready()
	done := make(chan struct{})
	go func() { // ends with the run
		defer close(done)
		s.takePart(h.Generation, say)
	}()
	for {
		select {
		case f := <-link.Found():
			s.Found(f.ID, f.PID, f.StartTicks)
		case <-link.Gone():
			fmt.Fprintln(os.Stderr, link.Succeed("/proc/self/exe", roleArgs("heir", dir, point)))
			return 93
		case <-done:
			_ = s.Close()
			_ = link.ShutdownDone()
			return keeper.DoneCode
		}
	}
}

func (s *Supervisor) takePart(gen int, say func(oneReport)) {
	if gen == 1 {
		script := fmt.Sprintf("if [ -p %[1]s/hold ]; then (read x <%[1]s/hold; echo late) & fi; echo ran >>%[1]s/ran; echo out; exit 7", s.cfg.Dir)
		_, _ = s.Start(context.Background(), wire.Start{Command: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/bin:/usr/bin"}, Session: "t", Name: "one", Leftover: "keep"})
		select {}
	}
	list, err := s.List(context.Background(), journal.Filter{Session: "t"})
	if err != nil || len(list.Handles) != 1 {
		fmt.Fprintln(os.Stderr, list, err)
		return
	}
	id := string(list.Handles[0].HandleID)
	w, err := s.Wait(context.Background(), id, "", 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	r := oneReport{Record: w.Record}
	entries, _ := s.Journal(context.Background(), 0, id, 0)
	for _, e := range entries {
		r.Kinds = append(r.Kinds, e.Kind)
	}
	out, _ := os.ReadFile(filepath.Join(s.cfg.Dir, "handles", id, "stdout"))
	r.Output = string(out)
	say(r)
}

// S4-06, S2-18: the keeper is killed between any two steps of a start and of an
// end. What was not spawned never is; what was has its output and its end.
func TestKeeperDiesBetweenSteps(t *testing.T) {
	t.Parallel()
	for point, kinds := range map[string]string{
		"admitted": "admitted ended", "registered": "admitted ended",
		"spawned": "admitted spawned ended", "observe": "admitted spawned ended", "settle": "admitted spawned ended",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			reports := startOne(t, dir, point)
			at := reports(t)
			if at.At != point || at.Gen != 1 {
				t.Fatalf("report %+v", at)
			}
			if err := syscall.Kill(at.Keeper, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			end := reports(t)
			if end.Gen != 2 || end.Keeper != at.PID || end.Record == nil {
				t.Fatalf("report %+v, want the keeper to be %d", end, at.PID)
			}
			if got := strings.Join(end.Kinds, " "); got != kinds {
				t.Errorf("entries %q, want %q", got, kinds)
			}
			ran, _ := os.ReadFile(filepath.Join(dir, "ran"))
			if kinds == "admitted ended" {
				if end.Record.Status != handles.Interrupted || len(ran) > 0 {
					t.Errorf("status %s %q, ran %q; want it never run", end.Record.Status, end.Record.Error, ran)
				}
				return
			}
			if c := end.Record.ExitCode; end.Record.Status != handles.Failed || c == nil || *c != 7 || end.Output != "out\n" || string(ran) != "ran\n" {
				t.Errorf("status %s %q, exit code %v, output %q, ran %q", end.Record.Status, end.Record.Error, c, end.Output, ran)
			}
		})
	}
}

// A pipe that a leftover still holds is not taken for one at its end when the
// keeper dies just before the end is recorded: the record says that the output is
// not complete, and what was written meanwhile is in it.
func TestKeeperDiesBeforeAnEndWithALeftover(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hold := filepath.Join(dir, "hold")
	if err := unix.Mkfifo(hold, 0o600); err != nil {
		t.Fatal(err)
	}
	reports := startOne(t, dir, "sealed")
	at := reports(t)
	if at.At != "sealed" {
		t.Fatalf("report %+v", at)
	}
	if err := syscall.Kill(at.Keeper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	end := reports(t)
	if err := os.WriteFile(hold, []byte("\n"), 0); err != nil { // it ends
		t.Error(err)
	}
	if end.Record == nil || end.Record.Output == nil || end.Record.Output.Complete || end.Output != "out\n" || len(end.Record.Cleanup.Leftovers) != 1 {
		t.Errorf("report %+v, record %+v, want output that is not complete", end, end.Record)
	}
}

// startOne starts the daemon of one run and returns what reads its reports.
func startOne(t *testing.T, dir, point string) (next func(*testing.T) oneReport) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", roleArgs("keeper", dir, point)[1:]...)
	cmd.Env = append(os.Environ(), roleVar+"=1", "GORACE=atexit_sleep_ms=0", "GOCOVERDIR="+t.TempDir())
	cmd.ExtraFiles, cmd.Stderr = []*os.File{w}, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var last oneReport
	in := bufio.NewReader(r)
	t.Cleanup(func() {
		r.SetReadDeadline(time.Now().Add(20 * time.Second))
		for { // the writers are gone at the end of the file
			if _, err := in.ReadByte(); err != nil {
				break
			}
		}
		r.Close()
		if last.Keeper > 0 && t.Failed() {
			_ = unix.Kill(last.Keeper, unix.SIGKILL)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return func(t *testing.T) oneReport {
		t.Helper()
		r.SetReadDeadline(time.Now().Add(20 * time.Second))
		line, err := in.ReadBytes('\n')
		if err != nil {
			t.Fatalf("the supervisor says nothing: %v", err)
		}
		last = oneReport{}
		if err := json.Unmarshal(line, &last); err != nil {
			t.Fatal(err)
		}
		return last
	}
}
