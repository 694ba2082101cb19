package capture

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func linuxHelper(mode string, args []string) int {
	switch mode {
	case "limited": // DIR LIMIT N: captures its own child under RLIMIT_FSIZE
		unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(atoi(args[1])), Max: unix.RLIM_INFINITY})
		return report(args[0], child("seq", args[2]))
	case "poor": // DIR: as a user whose pipes hold too much already
		var hold []*os.File
		for {
			r, w, err := os.Pipe()
			if err != nil {
				return 3
			}
			hold = append(hold, r, w)
			if _, err := unix.FcntlInt(r.Fd(), unix.F_SETPIPE_SZ, pipeLarge); errors.Is(err, unix.EPERM) {
				break
			} else if err != nil {
				return 4
			}
		}
		return report(args[0], child("seq", "1000000"))
	case "pumpself": // DIR: takes descriptor 3 for a pipe and pumps until killed
		l, err := Open(Config{Dir: args[0], Resume: true})
		if err != nil {
			return 3
		}
		if err := l.Attach(Stdout, os.NewFile(3, "pipe")); err != nil {
			return 4
		}
		fmt.Println("ready")
		time.Sleep(time.Hour)
	case "idle": // DIR: waits for output that does not come, 50 times
		for i := range 50 {
			l, err := Open(Config{Dir: filepath.Join(args[0], strconv.Itoa(i))})
			if err != nil {
				return 3
			}
			if _, err := l.Pipe(Stdout); err != nil {
				return 4
			}
			l.Feed(Stderr).Write([]byte("begun\n"))
			go l.Match(bg, Query{Pattern: "never"})
			go l.Stream(Stdout).Follow(0).Read(bg, make([]byte, 10))
		}
		time.Sleep(3 * idleClose / 2) // until all is closed that an idle stream closes
		fmt.Println("ready")
		time.Sleep(time.Hour)
	default:
		return 2
	}
	return 0
}

// report captures cmd and prints what became of it.
func report(dir string, cmd *exec.Cmd) int {
	l, err := Open(Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return 5
	}
	w, err := l.Pipe(Stdout)
	if err != nil {
		return 6
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 7
	}
	w.Close()
	cmd.Wait()
	l.Drain(bg, time.Minute, time.Minute)
	l.Close()
	e := l.Stream(Stdout).Extent()
	fmt.Printf("exit=%d total=%d lost=%d missing=%q\n", cmd.ProcessState.ExitCode(), e.Total, e.Lost(), e.Missing)
	return 0
}

// rss returns the resident bytes of the test.
func rss() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(bytes.Fields(b)[1]), 10, 64)
	return n * int64(os.Getpagesize())
}

// mount mounts a file system for the test, if it may.
func mount(t *testing.T, kind, options string) (dir string, ok bool) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("procsup-test", dir, kind, 0, options); err != nil {
		t.Logf("mount %s: %v", kind, err)
		return "", false
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir, true
}

// diskUse returns the bytes of the blocks in a folder.
func diskUse(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if st.Blocks == 0 && st.Mode&unix.S_IFMT == unix.S_IFREG {
			n += st.Size // ramfs counts no blocks
		}
		n += st.Blocks * 512
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return n
}

func TestDiskFullDegradesToCounting(t *testing.T) {
	dir, ok := mount(t, "tmpfs", "size=1m")
	if !ok {
		t.Skip("no right to mount")
	}
	guard(t)
	l := open(t, Config{Dir: filepath.Join(dir, "log")})
	s := l.Stream(Stdout)
	w := pipe(t, l, Stdout)
	want := seqText(1_000_000)
	half := len(want) / 2
	read := make(chan struct{})
	go func() { // beside what is pushed out of memory; ends when all is there
		defer close(read)
		for b := make([]byte, 64<<10); s.Extent().Total < int64(half); {
			_, _ = s.ReadAt(b, max(0, s.Extent().Total-tailSize-int64(len(b)/2)))
		}
	}()
	w.Write(want[:half])
	await(t, s, int64(half))
	<-read
	if e := s.Extent(); e.Missing != "disk full" || len(e.Omitted) != 1 || e.Omitted[0].From > 1<<20 || e.Omitted[0].From < 1<<19 {
		t.Errorf("extent %+v", e)
	}
	w.WriteString("ready to go")
	f, err := l.Match(t.Context(), Query{Pattern: "ready to go", Sources: []Source{Stdout}})
	if err != nil || f.From != int64(half) {
		t.Errorf("match %v, %v, want it at %d", f, err, half)
	}
	want = append(append(want[:half:half], "ready to go"...), want[half:]...)
	half += len("ready to go")

	if err := unix.Mount("", dir, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Duration(retryAfter)); time.Now().Before(end); half++ {
		w.Write(want[half : half+1]) // the spool is tried again when bytes come
		await(t, s, int64(half)+1)
	}
	w.Write(want[half:])
	w.Close()
	drain(l)
	e := s.Extent()
	if e.Total != int64(len(want)) || len(e.Omitted) != 1 || e.Omitted[0].To > int64(half) {
		t.Errorf("extent %+v, want a total of %d and one gap before %d", e, len(want), half)
	}
	checkKept(t, s, want)
	l.Close()
	r, err := Reopen(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if again := r.Stream(Stdout).Extent(); fmt.Sprint(again) != fmt.Sprint(e) {
		t.Errorf("reopened %+v, was %+v", again, e)
	}
	checkKept(t, r.Stream(Stdout), want)
}

// The matcher sees every byte that a full disk does not take.
func TestDiskFullMatchesEverything(t *testing.T) {
	dir, ok := mount(t, "tmpfs", "size=200k")
	if !ok {
		t.Skip("no right to mount")
	}
	guard(t)
	l := open(t, Config{Dir: filepath.Join(dir, "log")})
	cmd := child("seq", "1000000")
	type result struct {
		f   Found
		err error
	}
	got := make(chan result, 1)
	go func() {
		f, err := l.Match(t.Context(), Query{Pattern: `\b654321\b`, Regex: true})
		got <- result{f, err}
	}()
	for registered := false; !registered; {
		s := l.Stream(Stdout)
		s.mu.Lock()
		registered = len(s.scans) > 0
		s.mu.Unlock()
	}
	run(t, l, cmd)
	if r := <-got; r.err != nil || r.f.Text != "654321" {
		t.Errorf("match %v, %v", r.f, r.err)
	}
}

func TestFileSizeLimit(t *testing.T) {
	guard(t)
	out, err := child("limited", filepath.Join(t.TempDir(), "log"), "100000", "200000").Output()
	total := len(seqText(200_000))
	want := fmt.Sprintf("exit=0 total=%d lost=%d missing=\"file size limit\"\n", total, total-100_000)
	// the child has the limit too, but writes to a pipe
	if err != nil || !strings.HasPrefix(string(out), "exit=0 total="+fmt.Sprint(total)) || !strings.Contains(string(out), "file size limit") {
		t.Errorf("got %s, %v, want %s", out, err, want)
	}
}

func TestPipeLimitOfTheUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	guard(t)
	dir := t.TempDir()
	os.Chmod(filepath.Dir(dir), 0o755)
	os.Chmod(dir, 0o777)
	cmd := child("poor", filepath.Join(dir, "log"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err := cmd.Output()
	if want := fmt.Sprintf("exit=0 total=%d lost=0 missing=\"\"\n", len(seqText(1_000_000))); err != nil || string(out) != want {
		t.Errorf("got %s, %v, want %s", out, err, want)
	}
}

// SIGKILL of the process that pumps loses and doubles nothing, as long as
// somebody holds the pipe.
func TestKilledPumpLosesNothing(t *testing.T) {
	guard(t)
	dir := filepath.Join(t.TempDir(), "log")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	writer := child("words", "5000000")
	writer.Stdout = w
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for i := range 20 {
		p := child("pumpself", dir)
		p.ExtraFiles = []*os.File{r}
		out, err := p.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 6)
		if _, err := out.Read(buf); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i*137) * time.Microsecond) // a moment like any other
		p.Process.Kill()
		p.Wait()
	}
	l, err := Open(Config{Dir: dir, Resume: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Attach(Stdout, r); err != nil {
		t.Fatal(err)
	}
	writer.Wait()
	if !l.Drain(t.Context(), time.Minute, time.Minute) {
		t.Error("not complete")
	}
	got, gaps := contents(t, l.Stream(Stdout))
	if want := words(0, 5_000_000); !bytes.Equal(got, want) || len(gaps) > 0 {
		t.Errorf("%d bytes, gaps %v, want %d bytes", len(got), gaps, len(want))
	}
}

func TestS2_12_IdleWaiterMakesNoSystemCall(t *testing.T) {
	guard(t)
	cmd := child("idle", t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid))
	if most := 3 + 2*50 + 8; len(fds) > most { // both ends of 50 pipes, and the runtime's
		t.Errorf("%d descriptors, want at most %d", len(fds), most)
	}
	switches(t, cmd.Process.Pid)
	time.Sleep(200 * time.Millisecond) // the runtime comes to rest
	before, threads := switches(t, cmd.Process.Pid)
	time.Sleep(2 * time.Second) // what is measured
	after, _ := switches(t, cmd.Process.Pid)
	if n := after - before; n > 10 {
		t.Errorf("%d context switches in 2 s of waiting", n)
	}
	if threads > 15 {
		t.Errorf("%d threads", threads)
	}
}

// switches returns how often the threads of a process gave up the processor.
func switches(t *testing.T, pid int) (n, threads int) {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				n += atoi(strings.TrimSpace(rest))
			}
		}
	}
	return n, len(files)
}
