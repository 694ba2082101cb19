package capture

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childEnv names what the test binary is to be when it is a helper.
const childEnv = "PROCSUP_CAPTURE_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		os.Exit(helper(mode, os.Args[1:]))
	}
	r, w, err := os.Pipe() // Go's poller has descriptors of its own from now on
	if err != nil {
		panic(err)
	}
	r.SetReadDeadline(time.Now())
	r.Close()
	w.Close()
	os.Exit(m.Run())
}

// child returns a command that runs the test binary as a helper.
func child(mode string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	if runtime.GOOS != "linux" {
		cmd = exec.Command(os.Args[0], args...)
	}
	cmd.Env = append(os.Environ(), childEnv+"="+mode, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// helper is what runs in the child.
func helper(mode string, args []string) int {
	switch mode {
	case "echo": // TEXT...: writes each by one write
		for _, s := range args {
			os.Stdout.WriteString(s)
		}
	case "err": // OUT ERR CODE
		os.Stdout.WriteString(args[0])
		os.Stderr.WriteString(args[1])
		return atoi(args[2])
	case "fill": // BYTE COUNT TAIL
		b := []byte(strings.Repeat(args[0], 1<<16))
		for n := atoi(args[1]); n > 0; n -= len(b) {
			os.Stdout.Write(b[:min(n, len(b))])
		}
		os.Stdout.WriteString(args[2])
	case "seq": // N: numbered lines
		w := newLineWriter(os.Stdout, atoi(args[0]))
		w.all()
	case "hold": // writes TEXT, leaves a child that holds the pipe until it is killed, ends
		cmd := child(args[1])
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			return 1
		}
		fmt.Fprintln(os.Stderr, cmd.Process.Pid)
		os.Stdout.WriteString(args[0])
	case "quiet":
		time.Sleep(time.Hour)
	case "noisy":
		for {
			os.Stdout.WriteString("noise\n")
			time.Sleep(time.Millisecond)
		}
	case "words": // N: so many words
		for from, n := 0, atoi(args[0]); from < n; from += 1 << 13 {
			if _, err := os.Stdout.Write(words(from, min(from+1<<13, n))); err != nil {
				return 1
			}
		}
	case "writer": // KIND BYTES
		return writeOut(args[0], atoi(args[1]))
	case "copy":
		io.Copy(os.Stdout, os.Stdin)
	default:
		return linuxHelper(mode, args)
	}
	return 0
}

var bg = context.Background()

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

type lineWriter struct {
	w io.Writer
	n int
}

func newLineWriter(w io.Writer, n int) lineWriter { return lineWriter{w, n} }

func (l lineWriter) all() {
	var b []byte
	for i := 1; i <= l.n; i++ {
		b = fmt.Appendf(b, "%d\n", i)
		if len(b) > 4000 || i == l.n {
			l.w.Write(b)
			b = b[:0]
		}
	}
}

// seqText is what the seq helper writes.
func seqText(n int) []byte {
	var b strings.Builder
	newLineWriter(&b, n).all()
	return []byte(b.String())
}

// words are numbers of 8 bytes, so that every byte of a long output has its place.
func words(from, to int) []byte {
	b := make([]byte, 0, 8*(to-from))
	for i := from; i < to; i++ {
		b = binary.BigEndian.AppendUint64(b, uint64(i)|1<<63)
	}
	return b
}

// guard checks at the end of the test that nothing of it is left.
func guard(t *testing.T) {
	t.Helper()
	before := descriptors()
	t.Cleanup(func() {
		goleak.VerifyNone(t)
		for fd, what := range descriptors() {
			if before[fd] != what {
				t.Errorf("descriptor %s is left open: %s", fd, what)
			}
		}
		var ws syscall.WaitStatus
		if pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil); err != syscall.ECHILD {
			t.Errorf("a child is left: %d, %v", pid, err)
		}
	})
}

func descriptors() map[string]string {
	m := make(map[string]string)
	names, _ := filepath.Glob("/proc/self/fd/*")
	for _, n := range names {
		if what, err := os.Readlink(n); err == nil && !strings.HasPrefix(what, "/proc/") {
			m[filepath.Base(n)] = what
		}
	}
	return m
}

// open opens a log that is closed with the test.
func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "log")
	}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// pipe returns the writing end of a new pipe of the log.
func pipe(t *testing.T, l *Log, src Source) *os.File {
	t.Helper()
	w, err := l.Pipe(src)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// begin starts cmd with its output in l.
func begin(t *testing.T, l *Log, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	out, err := l.Pipe(Stdout)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout = out
	if cmd.Stderr == nil {
		errw, err := l.Pipe(Stderr)
		if err != nil {
			t.Fatal(err)
		}
		defer errw.Close()
		cmd.Stderr = errw
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return cmd
}

// drain drains l as a supervisor does and reports whether it was complete.
func drain(l *Log) bool {
	return l.Drain(context.Background(), 50*time.Millisecond, 2*time.Second)
}

// run runs a command with its output in l to the end.
func run(t *testing.T, l *Log, cmd *exec.Cmd) *os.ProcessState {
	t.Helper()
	begin(t, l, cmd)
	cmd.Wait()
	if !l.Drain(context.Background(), time.Minute, time.Minute) {
		t.Error("drain is not complete")
	}
	return cmd.ProcessState
}

// contents reads the whole stream through ReadAt; gaps are returned apart.
func contents(t *testing.T, s *Stream) (b []byte, gaps []Range) {
	t.Helper()
	total := s.Extent().Total
	ps, _, err := s.pieces(Range{0, total})
	if err != nil {
		t.Fatal(err)
	}
	off := int64(0)
	for _, p := range ps {
		if p.off > off {
			gaps = append(gaps, Range{off, p.off})
		}
		b = append(b, p.b...)
		off = p.end()
	}
	if off < total {
		gaps = append(gaps, Range{off, total})
	}
	return b, gaps
}

// await waits until the stream has at least n bytes.
func await(t *testing.T, s *Stream, n int64) {
	t.Helper()
	for {
		bell := s.Bell()
		if s.Extent().Total >= n {
			return
		}
		if s.Ended() {
			t.Fatalf("%v ended at %d bytes, want %d", s.Source(), s.Extent().Total, n)
		}
		select {
		case <-bell:
		case <-time.After(time.Minute):
			t.Fatalf("%v has %d bytes, want %d", s.Source(), s.Extent().Total, n)
		}
	}
}

func sameRanges(a, b []Range) bool { return slices.Equal(a, b) }
