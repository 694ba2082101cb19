package keeper

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"procsup/platform"
)

// roleEnv makes the test binary a keeper, supervisor or command, with its
// arguments after blanks. GORACE spares a second at every exit.
const roleEnv = "KEEPER_TEST_ROLE"

// protocolEnv makes it a program that speaks another protocol.
const protocolEnv = "KEEPER_TEST_PROTOCOL"

var roles = map[string]func([]string) int{
	"keeper": keeperRole,
	"heir":   heirRole,
	"manual": manualRole,
	"chaos":  chaosRole,
	"linger": lingerRole,
	"slow":   slowRole,
}

func TestMain(m *testing.M) {
	testProtocol = os.Getenv(protocolEnv)
	if line := os.Getenv(roleEnv); line != "" {
		if len(os.Args) > 2 && os.Args[1] == "role" { // a supervisor: its keeper's environment is another's
			line = strings.Join(os.Args[2:], " ")
		}
		f := strings.Fields(line)
		os.Exit(roles[f[0]](f[1:]))
	}
	before := leftovers()
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if after := leftovers(); after != before {
		fmt.Fprintf(os.Stderr, "left behind:\n%s\nbefore:\n%s\n", after, before)
		code = 1
	}
	os.Exit(code)
}

// leftovers says what this process holds: descriptors and children.
func leftovers() string {
	var out []string
	for fd := range 256 {
		to, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
		if err == nil && !strings.HasPrefix(to, "anon_inode:[event") && !strings.HasPrefix(to, "anon_inode:[pidfd") {
			out = append(out, fmt.Sprint("fd ", fd, " ", to))
		}
	}
	for _, pid := range platform.Children(os.Getpid()) {
		out = append(out, fmt.Sprint("child ", pid, " ", platform.CommandLine(pid, 0)))
	}
	return strings.Join(out, "\n")
}

// keeperRole is the keeper: its configuration is JSON in an argument. Its
// descriptor 3 is what it passes to supervisors, if there is one.
func keeperRole([]string) int {
	platform.SetCloexec(3)
	cfg, c, err := keeperConfig(os.Args[1])
	if err != nil {
		return 98
	}
	cfg.Files = []*os.File{os.NewFile(3, "control")}
	if c.Lock != "" {
		f, err := os.OpenFile(c.Lock, os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		if err != nil {
			return 97
		}
		cfg.Lock = f
	}
	return Keep(context.Background(), cfg)
}

// heirRole is a keeper that goes on in another's place.
func heirRole(args []string) int {
	e, err := OpenEstate(atoi(args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 92
	}
	cfg, _, err := keeperConfig(args[0])
	if err != nil {
		return 98
	}
	cfg.Estate, cfg.Files, cfg.Lock, cfg.Carry = e, e.Files, e.Lock, e.Carry
	return Keep(context.Background(), cfg)
}

func keeperConfig(body string) (cfg Config, c rigConfig, err error) {
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		return cfg, c, err
	}
	cfg = Config{Supervisor: append([]string{"sup", "role"}, c.Supervisor...), Exe: c.Exe, Retry: c.Retry, Grace: c.Grace,
		Heir: []string{"sup", "role", "heir", body}, Carry: map[string]string{"config": body},
		Log: slog.New(slog.NewJSONHandler(os.Stdout, nil))}
	if c.NoHeir {
		cfg.Heir = nil
	}
	cfg.Ready = func() { cfg.Log.Info("first ready") }
	return cfg, c, nil
}

// A rigConfig is Config as far as a test sets it.
type rigConfig struct {
	Supervisor   []string
	Exe, Lock    string
	Retry, Grace time.Duration
	NoHeir       bool // a keeper that obeys no demand
}

// A rig is a keeper process and the test's wire to its supervisors.
type rig struct {
	t      testing.TB
	cmd    *exec.Cmd
	conn   *net.UnixConn
	sup    report // the last hand-over
	keeper int    // its keeper
	later  []report
	log    chan map[string]any
	exited chan int // the keeper's exit code
}

// newRig starts a keeper. Its Cleanup kills everything and waits for it.
func newRig(t testing.TB, c rigConfig) *rig {
	t.Helper()
	if c.Supervisor == nil {
		c.Supervisor = []string{"manual"}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	body, _ := json.Marshal(c)
	r := &rig{t: t, conn: conn.(*net.UnixConn), log: make(chan map[string]any, 1000), exited: make(chan int, 1)}
	r.cmd = exec.Command("/proc/self/exe", string(body))
	r.cmd.Env = append(os.Environ(), roleEnv+"=keeper", "GORACE=atexit_sleep_ms=0", "GOCOVERDIR="+t.TempDir())
	r.cmd.ExtraFiles = []*os.File{theirs}
	r.cmd.Stderr = os.Stderr
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	logged := make(chan struct{})
	go func() { // ends with the keeper's and the supervisors' stdout
		defer close(logged)
		for dec := json.NewDecoder(stdout); ; {
			var line map[string]any
			if dec.Decode(&line) != nil {
				return
			}
			r.log <- line
		}
	}()
	go func() { // ends with the keeper
		<-logged
		_ = r.cmd.Wait()
		r.exited <- r.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { r.end() })
	return r
}

// end kills the keeper and all below it.
func (r *rig) end() {
	r.conn.Close()
	killTree(r.cmd.Process.Pid)
	if r.keeper != 0 {
		killTree(r.keeper)
	}
	select {
	case <-r.exited:
	case <-time.After(20 * time.Second):
		r.t.Error("the keeper does not end")
	}
}

func killTree(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP) // it starts no other supervisor
	var below []int
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		for _, c := range platform.Children(todo[0]) {
			_ = syscall.Kill(c, syscall.SIGSTOP)
			below, todo = append(below, c), append(todo, c)
		}
	}
	for _, c := range append(below, pid) {
		_ = syscall.Kill(c, syscall.SIGKILL)
	}
}

// A report is what a supervisor tells the test.
type report struct {
	Event      string // handover, reply, exit, request, gone
	PID        int
	Generation int
	Keeper     int
	Version    int
	Files      int
	Runs       []reportRun
	Exit       *Exit
	Request    *Request
	Err        string
	Refused    bool
	Ticks      uint64
	Text       string
}

type reportRun struct {
	ID, Token string
	Pipes     int
	PID       int
	Ticks     uint64
	Pending   bool
	Exit      *Exit
	Pidfd     bool
}

const patience = 20 * time.Second

// next waits for a report of one kind and keeps the others for later.
func (r *rig) next(event string) report {
	r.t.Helper()
	return r.match(func(rep report) bool { return rep.Event == event }, event)
}

func (r *rig) match(is func(report) bool, what string) report {
	r.t.Helper()
	for i := 0; ; i++ {
		if i == len(r.later) {
			r.read(what)
		}
		if rep := r.later[i]; is(rep) {
			r.later = slices.Delete(r.later, i, i+1)
			return rep
		}
	}
}

// read adds the next report to r.later.
func (r *rig) read(what string) {
	r.t.Helper()
	buf := make([]byte, 1<<18)
	r.conn.SetReadDeadline(time.Now().Add(patience))
	n, err := r.conn.Read(buf)
	if err != nil {
		r.t.Fatalf("wait for %s: %v", what, err)
	}
	var rep report
	if err := json.Unmarshal(buf[:n], &rep); err != nil {
		r.t.Fatal(err)
	}
	r.later = append(r.later, rep)
}

// connected waits for the next supervisor's hand-over.
func (r *rig) connected() report {
	r.t.Helper()
	r.sup = r.next("handover")
	r.keeper = r.sup.Keeper
	return r.sup
}

// tell sends a line to the supervisor without waiting for a reply.
func (r *rig) tell(format string, args ...any) {
	r.t.Helper()
	if _, err := fmt.Fprintf(r.conn, format, args...); err != nil {
		r.t.Fatal(err)
	}
}

// do sends a line to the supervisor and fails the test on an error.
func (r *rig) do(format string, args ...any) report {
	r.t.Helper()
	rep := r.try(format, args...)
	if rep.Err != "" {
		r.t.Fatalf(format+": %s", append(args, rep.Err)...)
	}
	return rep
}

func (r *rig) try(format string, args ...any) report {
	r.t.Helper()
	r.tell(format, args...)
	return r.next("reply")
}

// kill kills the supervisor and waits for the next one's hand-over.
func (r *rig) kill() report {
	r.t.Helper()
	r.strike()
	return r.connected()
}

func (r *rig) strike() {
	r.t.Helper()
	if err := syscall.Kill(r.sup.PID, syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// logged waits for a line of the keeper's log.
func (r *rig) logged(msg string) map[string]any {
	r.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line := <-r.log:
			if strings.Contains(line["msg"].(string), msg) {
				return line
			}
		case <-timeout:
			r.t.Fatalf("the keeper did not log %q", msg)
		}
	}
}

// code waits for the keeper's end.
func (r *rig) code() int {
	r.t.Helper()
	select {
	case code := <-r.exited:
		r.exited <- code
		return code
	case <-time.After(patience):
		r.t.Fatal("the keeper does not end")
		return -1
	}
}
