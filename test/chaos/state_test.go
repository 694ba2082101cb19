//go:build linux

package chaos

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// picture is a digest of all that is in a directory.
func picture(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		if e.Name() == "lock" { // who holds it writes his number there
			return nil
		}
		sum.Write([]byte(path + fi.Mode().String()))
		if fi.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum.Write(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func setPragma(t *testing.T, path, pragma string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("PRAGMA " + pragma); err != nil {
		t.Fatal(err)
	}
}

// S3-53: a journal that cannot be used is refused at once, by its path, and
// left as it is. No daemon stays that nobody can reach.
func TestUnusableJournal(t *testing.T) {
	write := func(b []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	garbage := make([]byte, 20000)
	for i := range garbage {
		garbage[i] = byte(i * 31 >> 3)
	}
	for name, c := range map[string]struct {
		spoil func(*testing.T, string)
		says  string
		code  int
	}{
		"garbage":   {write(garbage), "the journal is damaged: it does not begin as a database does", 125},
		"empty":     {write(nil), "the journal is damaged: it is truncated to 0 bytes", 125},
		"truncated": {func(t *testing.T, p string) { _ = os.Truncate(p, 5000) }, "the journal is damaged: it is truncated, 1 of ", 125},
		"another":   {func(t *testing.T, p string) { setPragma(t, p, "application_id = 5") }, "it is not a journal of procsup (application id 0x5)", 125},
		"newer":     {func(t *testing.T, p string) { setPragma(t, p, "user_version = 99") }, "; use the procsup that wrote it, or another state directory", 73},
		"folder":    {func(t *testing.T, p string) { _ = os.Remove(p); _ = os.Mkdir(p, 0o700) }, "it is not a regular file", 125},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			d := startDaemon(t, dir)
			d.ends(t, d.must(t, shell("exit 3")).HandleID)
			d.stop(t)
			path := filepath.Join(d.state(), "journal.db")
			c.spoil(t, path)
			before := picture(t, d.state())
			said, code := refuses(t, dir, nil)
			if code != c.code || !strings.Contains(said, c.says) || strings.Count(said, c.says) != 1 {
				t.Errorf("code %d, %s", code, said)
			}
			if c.code == 125 && !strings.Contains(said, path) {
				t.Errorf("no path: %s", said)
			}
			if got := picture(t, d.state()); got != before {
				t.Error("it was touched")
			}
			if _, err := os.Lstat(d.socket()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket is left: %v", err)
			}
		})
	}
}

// A torn journal loses commits that were answered. What the keeper holds of runs
// that are not in it any more is owned again, not dropped: the command lives, its
// output goes on, and it can be cancelled.
func TestJournalForgetsARun(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, *daemon){
		"torn": func(t *testing.T, d *daemon) {
			if err := os.Truncate(filepath.Join(d.state(), "journal.db-wal"), 40); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func(t *testing.T, d *daemon) {
			if err := os.RemoveAll(d.state()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			d := startDaemon(t, dir)
			goes := filepath.Join(t.TempDir(), "go")
			writes := d.must(t, shell(`while [ ! -e `+goes+` ]; do sleep .02; done; echo done; exit 6`))
			sleeps := d.must(t, shell(`exec sleep 604`))
			hello, err := d.Hello(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = unix.Kill(d.cmd.Process.Pid, unix.SIGSTOP) // no successor meanwhile
			_ = unix.Kill(hello.PID, unix.SIGKILL)
			if !waitFor(5*time.Second, func() bool { return !alive(hello.PID) && !client.Answers(d.socket()) }) {
				t.Fatal("the supervisor lives")
			}
			spoil(t, d)
			_ = unix.Kill(d.cmd.Process.Pid, unix.SIGCONT)
			d.nextGeneration(t, hello.Generation)
			rec, err := d.Show(t.Context(), string(sleeps.HandleID))
			if err != nil || rec.Status != handles.Running || rec.PID != sleeps.PID || rec.Descriptor != "sleep 604" || rec.Error == "" {
				t.Fatalf("%+v, %v", rec, err)
			}
			if err := os.WriteFile(goes, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if rec := d.ends(t, writes.HandleID); rec.ExitCode == nil || *rec.ExitCode != 6 {
				t.Errorf("%+v", rec)
			}
			if b, err := os.ReadFile(writes.StdoutPath); err != nil || string(b) != "done\n" {
				t.Errorf("output %q, %v", b, err)
			}
			if c, err := d.Cancel(t.Context(), string(sleeps.HandleID), wire.Cancel{}); err != nil || !c.Cancelled || alive(sleeps.PID) {
				t.Errorf("%+v, %v", c, err)
			}
			rep, err := d.CheckJournal(t.Context())
			if err != nil || len(rep.Unfit)+len(rep.Dirty) > 0 || (len(rep.Damage) > 0) != (name == "torn") { // it goes on saying that commits are lost
				t.Errorf("journal check: %+v, %v", rep, err)
			}
		})
	}
}

// The state directory is deleted under a daemon: nothing new is started that a
// restart would not know of, and what runs can still be ended.
func TestStateDeletedWhileRunning(t *testing.T) {
	d := startDaemon(t, shortDir(t))
	a := d.must(t, shell("exec sleep 605"))
	if err := os.RemoveAll(d.state()); err != nil {
		t.Fatal(err)
	}
	_, err := d.Start(t.Context(), shell("exit 0"))
	if !errors.Is(err, handles.ErrPersistence) || !strings.Contains(err.Error(), d.state()) || !strings.Contains(err.Error(), "was deleted") {
		t.Errorf("a start: %v", err)
	}
	if c, err := d.Cancel(t.Context(), string(a.HandleID), wire.Cancel{}); err != nil || !c.Cancelled {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := os.Stat(filepath.Join(d.state(), "journal.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a journal was made anew under a running daemon: %v", err)
	}
}

// removeBusy removes a directory in which the daemon may be binding its socket
// again meanwhile.
func removeBusy(dir string) error {
	err := os.RemoveAll(dir)
	for errors.Is(err, syscall.ENOTEMPTY) {
		err = os.RemoveAll(dir)
	}
	return err
}

// The socket's path, or its whole directory, is deleted or moved away: the
// daemon binds it again.
func TestSocketDirDeletedWhileRunning(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"socket":    func(dir string) error { return os.Remove(filepath.Join(dir, "s")) },
		"directory": removeBusy,
		"moved":     func(dir string) error { return os.Rename(dir, dir+".away") },
	} {
		t.Run(name, func(t *testing.T) {
			d := startDaemonAt(t, shortDir(t), "run/s")
			a := d.must(t, shell("exec sleep 606"))
			if err := remove(filepath.Dir(d.socket())); err != nil {
				t.Fatal(err)
			}
			if !waitFor(5*time.Second, func() bool { return client.Answers(d.socket()) }) {
				t.Fatal("nobody answers")
			}
			d.Close()
			d.Client = client.New(client.Config{Socket: d.socket(), State: d.state()})
			if rec, err := d.Show(t.Context(), string(a.HandleID)); err != nil || rec.PID != a.PID {
				t.Errorf("%+v, %v", rec, err)
			}
		})
	}
}

// The binary is deleted, or replaced by one that does not work, while the daemon
// runs: after a death of the supervisor the keeper starts another from its own
// image.
func TestBinaryGone(t *testing.T) {
	for name, spoil := range map[string]func(exe string) error{
		"deleted": os.Remove,
		"garbage": func(exe string) error { return replaceFile(exe, "garbage", 0o755) },
		"broken":  func(exe string) error { return replaceFile(exe, "#!/bin/sh\nexit 3\n", 0o755) },
		"no mode": func(exe string) error { return replaceFile(exe, "#!/bin/sh\nexit 3\n", 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			exe := filepath.Join(t.TempDir(), "procsupd")
			b, err := os.ReadFile(procsupd)
			if err == nil {
				err = os.WriteFile(exe, b, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
			d := startDaemonOf(t, exe, shortDir(t))
			a := d.must(t, shell("exec sleep 607"))
			for range 2 {
				hello, err := d.Hello(t.Context())
				if err == nil {
					_ = os.Remove(exe + ".old")
					if _, serr := os.Stat(exe); serr == nil {
						err = spoil(exe)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				_ = syscall.Kill(hello.PID, syscall.SIGKILL)
				d.nextGeneration(t, hello.Generation)
			}
			if rec, err := d.Show(t.Context(), string(a.HandleID)); err != nil || rec.PID != a.PID || rec.Status != handles.Running {
				t.Errorf("%+v, %v", rec, err)
			}
			d.worksAgain(t)
		})
	}
}

// replaceFile puts another file at a path, as an installer does.
func replaceFile(path, text string, mode os.FileMode) error {
	if err := os.WriteFile(path+".new", []byte(text), mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// A state directory of somebody else, or one that cannot be written, is refused
// by name and not touched.
func TestForeignStateDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	for name, owner := range map[string]int{"of root": 0, "of another": 65530, "its own, read-only": 65533} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			state := filepath.Join(dir, "state")
			if err := errors.Join(os.Chmod(dir, 0o777), os.Mkdir(state, 0o555), os.Chown(state, owner, owner), os.Chmod(filepath.Dir(procsupd), 0o755)); err != nil {
				t.Fatal(err)
			}
			said, code := refuses(t, dir, func(c *exec.Cmd) {
				c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
				c.Env = append(os.Environ(), "HOME="+dir)
			})
			if code != 73 && owner != 65533 || code != 125 && owner == 65533 || !strings.Contains(said, state) {
				t.Errorf("code %d, %s", code, said)
			}
			if es, err := os.ReadDir(state); err != nil || len(es) != 0 {
				t.Errorf("touched: %v, %v", es, err)
			}
		})
	}
}
