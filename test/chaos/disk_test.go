//go:build linux

package chaos

import (
	"errors"
	"fmt"
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

// smallDisk is a directory for a daemon whose state has a file system of its own.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := shortDir(t)
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "mode=700,"+options); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(state, 0); err != nil {
			t.Errorf("unmount: %v", err)
			_ = unix.Unmount(state, unix.MNT_DETACH)
		}
	})
	return dir
}

// fill takes the last byte of the disk of state.
func (d *daemon) fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(filepath.Join(d.state(), name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for n := 1 << 20; n > 0; {
		if _, err := f.Write(make([]byte, n)); errors.Is(err, unix.ENOSPC) {
			n /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// refuses starts a daemon that does not come up, and gives what it says and its
// exit code.
func refuses(t *testing.T, dir string, prepare func(*exec.Cmd)) (said string, code int) {
	t.Helper()
	cmd := exec.Command(procsupd, "--socket", filepath.Join(dir, "s"), "--state", filepath.Join(dir, "state"))
	if prepare != nil {
		prepare(cmd)
	}
	var out strings.Builder
	cmd.Stderr, cmd.WaitDelay = &out, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer over.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("it did not refuse: %v, %s", err, out.String())
	}
	return out.String(), exit.ExitCode()
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi
}

// S4-41: the disk is filled to its last byte while commands run. Starts are
// refused before a spawn and say why; what runs is neither blocked nor killed,
// and its end lands; output is counted on, and the record says what is not
// there. A supervisor that dies then is followed by one that takes everything up.
// With room again all goes on.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, "size=8m")
	d := startDaemon(t, dir)
	marks := t.TempDir()
	goes := filepath.Join(marks, "go")
	writes := d.must(t, shell(`while [ ! -e `+goes+` ]; do head -c 65536 /dev/zero | tr "\0" x; done; exit 5`))
	quiet := d.must(t, shell(`while [ ! -e `+goes+` ]; do sleep .02; done; echo done; exit 6`))
	sleeps := d.must(t, shell(`exec sleep 603`))
	d.fill(t, "fill")

	refused := func() {
		t.Helper()
		_, err := d.Start(t.Context(), shell("echo >"+filepath.Join(marks, "ran")))
		if !errors.Is(err, handles.ErrPersistence) || !strings.Contains(err.Error(), "full") || !strings.Contains(err.Error(), "nothing was started") {
			t.Errorf("a start on a full disk: %v", err)
		}
		if _, err := os.Stat(filepath.Join(marks, "ran")); err == nil {
			t.Error("it ran")
		}
	}
	refused()
	d.writesOn(t, writes.HandleID)
	hello, err := d.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(hello.PID, syscall.SIGKILL)
	d.nextGeneration(t, hello.Generation)
	refused()
	d.writesOn(t, writes.HandleID)

	if err := os.WriteFile(goes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rec := d.ends(t, quiet.HandleID)
	lost := rec.Output.Stdout.Why == "disk full" && fmt.Sprint(rec.Output.Stdout.Omitted) == "[{0 5}]" && size(t, quiet.StdoutPath) == 0
	kept := rec.Output.Stdout.Omitted == nil && size(t, quiet.StdoutPath) == 5 // a piece of the reserve was free
	if rec.ExitCode == nil || *rec.ExitCode != 6 || rec.Output.Stdout.Bytes != 5 || lost == kept {
		t.Errorf("the quiet one: %+v %+v", rec, rec.Output.Stdout)
	}
	rec = d.ends(t, writes.HandleID)
	if rec.ExitCode == nil || *rec.ExitCode != 5 || rec.Output.Stdout.Why != "disk full" {
		t.Errorf("the one that writes: %+v", rec)
	}
	if rec.Output.Stdout.Omitted == nil || rec.Output.Stdout.Bytes <= onDisk(t, writes.StdoutPath) {
		t.Errorf("%+v", rec.Output.Stdout)
	}
	if c, err := d.Cancel(t.Context(), string(sleeps.HandleID), wire.Cancel{}); err != nil || !c.Cancelled {
		t.Errorf("cancel: %+v, %v", c, err)
	}

	if err := os.Remove(filepath.Join(d.state(), "fill")); err != nil {
		t.Fatal(err)
	}
	d.worksAgain(t)
}

// must starts a command.
func (d *daemon) must(t *testing.T, req wire.Start) *wire.Started {
	t.Helper()
	a, err := d.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if a.SpawnError != nil {
		t.Fatalf("%+v", a)
	}
	return a
}

// ends waits for the end of a run, not for ever.
func (d *daemon) ends(t *testing.T, id handles.ID) *handles.Record {
	t.Helper()
	w, err := d.Wait(t.Context(), string(id), 20*time.Second)
	if err != nil || !w.Record.Status.Terminal() {
		t.Fatalf("%s has not ended: %+v, %v", id, w, err)
	}
	return w.Record
}

// writesOn waits until more output of a run is counted: it is not blocked.
func (d *daemon) writesOn(t *testing.T, id handles.ID) {
	t.Helper()
	first := int64(-1)
	ok := waitFor(20*time.Second, func() bool {
		rec, err := d.Show(t.Context(), string(id))
		if err != nil || rec.Output == nil {
			return false
		}
		if first < 0 {
			first = rec.Output.Stdout.Bytes
		}
		return rec.Output.Stdout.Bytes > first+4<<20
	})
	if !ok {
		t.Errorf("%s is blocked, or nobody counts", id)
	}
}

// worksAgain waits until a start is taken, and checks that all of it is right.
func (d *daemon) worksAgain(t *testing.T) {
	t.Helper()
	w := work{n: 9, lines: 500, code: 4}
	var a *wire.Started
	var err error
	if !waitFor(5*time.Second, func() bool { a, err = d.Start(t.Context(), w.request()); return err == nil }) {
		t.Fatalf("still refused: %v", err)
	}
	if err := w.check(a, d.ends(t, a.HandleID)); err != nil {
		t.Error(err)
	}
	rep, err := d.CheckJournal(t.Context())
	if err != nil || len(rep.Damage)+len(rep.Unfit)+len(rep.Dirty) > 0 {
		t.Errorf("journal check: %+v, %v", rep, err)
	}
}

// A daemon that finds the disk full says so, ends and leaves everything as it
// is; with room it starts and knows what was.
func TestFullDiskAtStart(t *testing.T) {
	dir := smallDisk(t, "size=8m")
	d := startDaemon(t, dir)
	req := shell("echo hi; exit 3")
	req.Lease = "service" // for an end that is owed room is kept, and then a daemon starts on a full disk
	before := d.ends(t, d.must(t, req).HandleID)
	d.stop(t)
	d.fill(t, "fill")
	said, code := refuses(t, dir, nil)
	if code != 125 || !strings.Contains(said, "is full") || !strings.Contains(said, d.state()) {
		t.Errorf("code %d, %s", code, said)
	}
	if err := os.Remove(filepath.Join(d.state(), "fill")); err != nil {
		t.Fatal(err)
	}
	d = startDaemon(t, dir)
	if rec, err := d.Show(t.Context(), string(before.HandleID)); err != nil || rec.Revision != before.Revision || *rec.ExitCode != 3 {
		t.Errorf("%+v, %v", rec, err)
	}
	d.worksAgain(t)
}

// A state directory on a disk that is mounted read-only is refused by name.
func TestReadOnlyMount(t *testing.T) {
	dir := smallDisk(t, "size=1m")
	state := filepath.Join(dir, "state")
	if err := unix.Mount("", state, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skipf("remount: %v", err)
	}
	said, code := refuses(t, dir, nil)
	if code != 125 || !strings.Contains(said, state) || !strings.Contains(said, "read-only file system") || strings.Count(said, "\n") != 1 {
		t.Errorf("code %d, %s", code, said)
	}
}

// size is that of a file; one that could not even be made has none.
func size(t *testing.T, path string) int64 {
	t.Helper()
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return 0
	}
	return stat(t, path).Size()
}

// onDisk is how much a file takes there.
func onDisk(t *testing.T, path string) int64 {
	t.Helper()
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return 0
	}
	return stat(t, path).Sys().(*syscall.Stat_t).Blocks * 512
}
