package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"procsup/handles"
)

// helpOpen opens the journal and says how that went.
func helpOpen(args []string) int {
	j, err := Open(args[0], Options{})
	if err != nil {
		fmt.Println(errors.Is(err, handles.ErrNotOwner), err)
		return 0
	}
	fmt.Println("opened", j.Close())
	return 0
}

// helpLock takes the lock and holds it until its input ends.
func helpLock(args []string) int {
	f, err := Lock(args[0])
	if err != nil {
		fmt.Println(errors.Is(err, handles.ErrLocked), err)
		return 0
	}
	fmt.Println("locked")
	io.Copy(io.Discard, os.Stdin)
	f.Close()
	return 0
}

// The directory and the files are for their owner alone.
func TestModes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b c%3f?")
	j := openIn(t, dir)
	commit(t, j, admitted(1, id(1)))
	for name, want := range map[string]os.FileMode{"": 0o700 | os.ModeDir, "journal.db": 0o600, "journal.db-wal": 0o600, "journal.db-shm": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if info.Mode() != want {
			t.Errorf("%q has mode %v, want %v", name, info.Mode(), want)
		}
	}
	must(t, j.Close())
	must(t, os.Chmod(j.path, 0o644))
	must(t, openIn(t, dir).Close())
	if info, err := os.Stat(j.path); err != nil || info.Mode() != 0o600 {
		t.Errorf("a journal others could read: %v %v", info.Mode(), err)
	}
	if left, err := filepath.Glob(dir + "/.*"); err != nil || len(left) > 0 {
		t.Errorf("left over: %v %v", left, err)
	}
}

// S3-53: one daemon at a time has the directory; the other is told who.
func TestS3_53_Locked(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	cmd := helper(t, "lock", dir)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "locked\n" {
		t.Fatalf("helper: %q", line)
	}
	if f, err := Lock(dir); !errors.Is(err, handles.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", cmd.Process.Pid)) {
		t.Errorf("second lock: %v %v, want locked by %d", f, err, cmd.Process.Pid)
	}
	in.Close()
	must(t, cmd.Wait())
	f, err := Lock(dir)
	must(t, err)
	defer f.Close()
	if got, err := helper(t, "lock", dir).Output(); err != nil || !strings.HasPrefix(string(got), "true ") {
		t.Errorf("a helper while we have it: %q %v", got, err)
	}
	if pid := LockedBy(dir); pid != os.Getpid() {
		t.Errorf("the lock file says %d", pid)
	}
	if left, err := helper(t, "open", dir).Output(); err != nil || string(left) != "opened <nil>\n" {
		t.Errorf("Open does not need the lock: %q %v", left, err)
	}
}

// The lock of a closed file is free; it is not handed to what we execute.
func TestS3_53_LockEndsWithItsDescriptors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := Lock(dir)
	must(t, err)
	cmd := helper(t, "lock", t.TempDir()) // lives on
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	must(t, f.Close())
	g, err := Lock(dir)
	must(t, err)
	must(t, g.Close())
	in.Close()
	must(t, cmd.Wait())
}

func TestS3_53_LockRefusesLinks(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"symlink":   func(path string) error { return os.Symlink("elsewhere", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		must(t, make(dir+"/lock"))
		if f, err := Lock(dir); err == nil {
			f.Close()
			t.Errorf("%s: locked", name)
		}
		if _, err := os.Stat(dir + "/elsewhere"); err == nil {
			t.Errorf("%s: its target was made", name)
		}
	}
}

// S3-53: a journal of a newer procsup is refused and not a byte of it changes,
// also when the new version is in the WAL only.
func TestS3_53_SchemaNewer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openIn(t, dir)
	commit(t, j, admitted(1, id(1)))
	must(t, j.Close())

	c, err := connect(dsn(j.path, "journal_mode(WAL)"))
	must(t, err)
	must(t, c.exec("PRAGMA user_version = 99; CREATE TABLE future(x); INSERT INTO future VALUES(1)"))
	inWAL := t.TempDir() // as a kill would leave it
	for _, name := range []string{"journal.db", "journal.db-wal"} {
		must(t, os.WriteFile(inWAL+"/"+name, []byte(files(t, dir, name)[0]), 0o600))
	}
	must(t, c.close())
	for name, dir := range map[string]string{"in the file": dir, "in the WAL": inWAL} {
		before := listing(t, dir)
		for range 2 {
			if _, err := Open(dir, Options{}); !errors.Is(err, handles.ErrSchemaNewer) || !strings.Contains(err.Error(), "99") {
				t.Errorf("%s: %v, want schema_newer with the version", name, err)
			}
		}
		if after := listing(t, dir); !slices.Equal(before, after) {
			t.Errorf("%s: the files were touched", name)
		}
	}
}

// listing is each file of dir with all that can change about it.
func listing(t testing.TB, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		all = append(all, fmt.Sprintln(e.Name(), info.Mode(), info.Size(), info.ModTime(), files(t, dir, e.Name())[0]))
	}
	return all
}

// Two that open a new directory at once get the same journal.
func TestS3_53_OpenedTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			out, err := helper(t, "open", dir).Output()
			if err != nil || string(out) != "opened <nil>\n" {
				t.Errorf("open: %q %v", out, err)
			}
		})
	}
	wg.Wait()
	a, b := openIn(t, dir), openIn(t, dir) // in one process too
	commit(t, a, admitted(1, id(1)))
	if _, err := b.Run(id(1)); err != nil {
		t.Error(err)
	}
	sound(t, b)
}
