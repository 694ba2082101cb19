//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A term is an interactive shell on a terminal of its own, driven by keys.
type term struct {
	t     *testing.T
	dir   string
	mark  string
	cmd   *exec.Cmd
	ctl   *os.File
	more  chan struct{} // something was written, or the terminal is at its end
	ended chan struct{} // closed when the shell was waited for

	mu   sync.Mutex
	out  []byte
	seen int // how far expect has looked
}

// levels runs a test at each level of containment.
func levels(t *testing.T, f func(t *testing.T, level string)) {
	for _, level := range []string{"auto", "tree", "group"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			f(t, level)
		})
	}
}

// newTerm starts bash with job control; $P there is procsup run at the level.
func newTerm(t *testing.T, level string) *term {
	t.Helper()
	need(t, "bash")
	x := &term{
		t: t, dir: t.TempDir(), more: make(chan struct{}, 1), ended: make(chan struct{}),
		mark: fmt.Sprintf("PROCSUP_TEST_MARK=%d.t%d.", os.Getpid(), scripts.Add(1)),
	}
	x.cmd = exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
	x.cmd.Dir = x.dir
	x.cmd.Env = append(os.Environ(), x.mark, "P=procsup run --containment="+level+" --", "PS1=> ", "TERM=xterm", "HISTFILE=")
	ctl, err := pty.StartWithSize(x.cmd, &pty.Winsize{Rows: 24, Cols: 120})
	if err != nil {
		t.Fatal(err)
	}
	x.ctl = pollable(t, ctl)
	go x.read() // ends with the terminal
	go func() { x.cmd.Wait(); close(x.ended) }()
	t.Cleanup(x.close)
	x.expect(`> $`)
	x.typeLine("stty -echo; echo $((6*7)) ready")
	x.expect(`42 ready\r\n> $`)
	return x
}

// pollable makes a close of the terminal end the read of it: pty's own file is
// in blocking mode, and a descriptor in use is not closed.
func pollable(t *testing.T, f *os.File) *os.File {
	t.Helper()
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func (x *term) read() {
	buf := make([]byte, 4096)
	for {
		n, err := x.ctl.Read(buf)
		x.mu.Lock()
		x.out = append(x.out, buf[:n]...)
		x.mu.Unlock()
		select {
		case x.more <- struct{}{}:
		default:
		}
		if err != nil {
			return // EIO when the last one has closed it
		}
	}
}

func (x *term) close() {
	x.ctl.Close()
	select {
	case <-x.ended:
	case <-time.After(5 * time.Second):
		x.cmd.Process.Kill()
		<-x.ended
	}
	if left := leftBehind(x.mark, 5*time.Second); len(left) > 0 {
		x.t.Errorf("left behind: %v", left)
	}
	if x.t.Failed() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.t.Logf("the terminal:\n%s", x.out)
	}
}

func (x *term) keys(s string) {
	x.t.Helper()
	if _, err := x.ctl.WriteString(s); err != nil {
		x.t.Fatal(err)
	}
}

func (x *term) typeLine(s string) { x.t.Helper(); x.keys(s + "\r") }

// expect waits until what came since the last expect matches.
func (x *term) expect(pattern string) {
	x.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.After(patience / 2); ; {
		x.mu.Lock()
		if at := re.FindIndex(x.out[x.seen:]); at != nil {
			x.seen += at[1]
			x.mu.Unlock()
			return
		}
		rest := string(x.out[x.seen:])
		x.mu.Unlock()
		select {
		case <-x.more:
		case <-end:
			x.t.Fatalf("the terminal does not show %q, only %q", pattern, rest)
		}
	}
}

// shellAnswers checks that the shell has the terminal and its modes back.
func (x *term) shellAnswers() {
	x.t.Helper()
	x.typeLine("echo $((40+2)) again")
	x.expect(`42 again\r\n`)
}

func (x *term) file(name, text string) {
	x.t.Helper()
	if err := os.WriteFile(filepath.Join(x.dir, name), []byte(text), 0o755); err != nil {
		x.t.Fatal(err)
	}
}

func (x *term) await(name, pattern string) {
	x.t.Helper()
	path := filepath.Join(x.dir, name)
	if !awaitFile(path, regexp.MustCompile(`(?m)`+pattern)) {
		data, _ := os.ReadFile(path)
		x.t.Fatalf("%s does not match %q: %q", name, pattern, data)
	}
}

func (x *term) pids(name string) []int {
	x.t.Helper()
	data, err := os.ReadFile(filepath.Join(x.dir, name))
	if err != nil {
		x.t.Fatal(err)
	}
	list, err := pidsIn(data)
	if err != nil {
		x.t.Fatal(err)
	}
	return list
}
