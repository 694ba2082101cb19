package journal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
)

const nobody = 65534

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: another uid, a file system of its own")
	}
}

// tmpfs mounts a file system of that size.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size="+size); err != nil {
		t.Skip("mount: ", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// S3-53: the state of another user is refused, both ways, and left alone.
func TestS3_53_NotOwner(t *testing.T) {
	t.Parallel()
	needRoot(t)
	top, err := os.MkdirTemp("", "journal") // t.TempDir's parents are ours alone
	must(t, err)
	defer os.RemoveAll(top)
	must(t, os.Chmod(top, 0o755))
	mine, theirs := top+"/mine", top+"/theirs"
	must(t, os.Mkdir(mine, 0o755))
	must(t, os.Mkdir(theirs, 0o700))
	must(t, os.Chown(theirs, nobody, nobody))
	if _, err := Open(theirs, Options{}); !errors.Is(err, handles.ErrNotOwner) || !strings.Contains(err.Error(), "65534") {
		t.Errorf("root in the directory of nobody: %v", err)
	}
	if f, err := Lock(theirs); !errors.Is(err, handles.ErrNotOwner) {
		t.Errorf("root locks the directory of nobody: %v %v", f, err)
	}
	exe := top + "/exe"                                // the go command builds where nobody may not look
	must(t, exec.Command("cp", os.Args[0], exe).Run()) // no descriptor of ours: ETXTBSY
	as := func(dir string) string {
		cmd := helper(t, "open", dir)
		cmd.Path = exe
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.Output()
		must(t, err)
		return string(out)
	}
	if got := as(mine); !strings.HasPrefix(got, "true ") {
		t.Errorf("nobody in the directory of root: %q", got)
	}
	if got := as(theirs); got != "opened <nil>\n" {
		t.Errorf("nobody in its own: %q", got)
	}
	must(t, os.Chown(theirs+"/journal.db", 0, 0))
	if got := as(theirs); !strings.HasPrefix(got, "true ") {
		t.Errorf("a journal of root in the directory of nobody: %q", got)
	}
	if left, err := os.ReadDir(mine); err != nil || len(left) > 0 {
		t.Errorf("left in the directory that was refused: %v %v", left, err)
	}
	must(t, os.Chown(theirs+"/journal.db", nobody, nobody))
	must(t, os.Chmod(theirs+"/journal.db", 0o400))
	if got := as(theirs); !strings.Contains(got, "readonly") && !strings.Contains(got, "read-only") {
		t.Errorf("a journal that may not be written: %q", got)
	}
}

// S3-46: a state directory that cannot be written is refused, with the reason.
func TestS3_46_ReadOnly(t *testing.T) {
	t.Parallel()
	dir := tmpfs(t, "4m")
	j := openIn(t, dir)
	commit(t, j, admitted(1, id(1)))
	must(t, j.Close())
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	before := listing(t, dir)
	if _, err := Open(dir, Options{}); !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), dir) {
		t.Errorf("open: %v, want the directory and EROFS", err)
	}
	if f, err := Lock(dir); !errors.Is(err, unix.EROFS) {
		t.Errorf("lock: %v %v", f, err)
	}
	if after := listing(t, dir); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("it was changed")
	}
}

// fillUp leaves no room in dir; the function makes room again.
func fillUp(t *testing.T, dir string) (empty func()) {
	t.Helper()
	f, err := os.Create(dir + "/hog")
	must(t, err)
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	must(t, f.Close())
	return func() { must(t, os.Remove(f.Name())) }
}

// S4-41, S4-44: on a full disk an admission is refused with the reason and
// leaves nothing, every end lands, in order; when there is room again all goes
// on and the reserve is made anew.
func TestS4_41_FullDisk(t *testing.T) {
	t.Parallel()
	const live = 40
	dir := tmpfs(t, "12m")
	troubles := make(chan error, 100)
	j, err := Open(dir, Options{Verify: true, Trouble: func(err error) { troubles <- err }})
	must(t, err)
	defer j.Close()
	j.SetReserve(live * ReservePerRun)
	seq := int64(0)
	for i := range live {
		seq++
		commit(t, j, admitted(seq, id(i)))
	}
	if got := reserveSize(t, dir); got < live*ReservePerRun {
		t.Fatalf("%d bytes are reserved for %d runs", got, live)
	}
	empty := fillUp(t, dir)
	for range 3 { // what is left of the WAL may take the first few
		for i := range 20 {
			seq++
			s := admitted(seq, id(1000+int(seq)))
			s.pad = 40_000
			err := j.Submit(s.batch()).Wait()
			if err == nil {
				continue
			}
			if !errors.Is(err, handles.ErrPersistence) || !(strings.Contains(err.Error(), "full") || errors.Is(err, unix.ENOSPC)) {
				t.Fatalf("admission %d on a full disk: %v, want persistence_failed and why", i, err)
			}
			if _, err := j.Run(s.id); !errors.Is(err, handles.ErrNotFound) {
				t.Errorf("the refused run %d: %v", i, err)
			}
			if e, err := j.Entries(0, s.id, 0); err != nil || len(e) > 0 {
				t.Errorf("entries of the refused run %d: %v %v", i, e, err)
			}
		}
	}
	seq++
	refusedRun := admitted(seq, id(5000))
	refusedRun.pad = 100_000
	if err := j.Submit(refusedRun.batch()).Wait(); !errors.Is(err, handles.ErrPersistence) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if err := <-troubles; err == nil {
		t.Error("trouble was not told")
	}
	for i := range live {
		seq++
		commit(t, j, ended(seq, id(i)))
	}
	for i := range live {
		if r, err := j.Run(id(i)); err != nil || r.Status != "completed" {
			t.Errorf("run %d on a full disk: %q %v", i, r.Status, err)
		}
	}
	t.Logf("%d of %d bytes of the reserve are left", reserveSize(t, dir), live*ReservePerRun)
	empty()
	if got := reserveSize(t, dir); got >= live*ReservePerRun {
		t.Errorf("the reserve was not needed: %d bytes are left", got)
	}
	until(t, func() bool { return reserveSize(t, dir) >= live*ReservePerRun })
	seq++
	commit(t, j, admitted(seq, id(6000)))
	sound(t, j)
}

// until waits for what no event tells.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("it did not happen")
		}
	}
}

func reserveSize(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(dir + "/journal.reserve")
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// S4-41: an end that finds neither room nor reserve waits for room, admissions
// behind it are refused at once, ends behind it come after it, and Close does
// not wait for ever.
func TestS4_41_EndWaitsForRoom(t *testing.T) {
	t.Parallel()
	dir := tmpfs(t, "4m")
	j := openIn(t, dir)
	commit(t, j, admitted(1, id(1)), admitted(2, id(2)), admitted(3, id(3)))
	empty := fillUp(t, dir)
	big := func(seq int64, id string) Batch { // more than the WAL has left
		b := ended(seq, id).batch()
		b.Entries[0].Body = fmt.Appendf(nil, `{"record":%s,"pad":%q}`, b.Runs[0].Record, strings.Repeat("x", 200_000))
		return b
	}
	first, second := j.Submit(big(4, id(1))), j.Submit(big(5, id(2)))
	for n := range int64(3) {
		s := admitted(6+n, id(10+int(n)))
		s.pad = 50_000
		if err := j.Submit(s.batch()).Wait(); !errors.Is(err, handles.ErrPersistence) {
			t.Errorf("admission behind an end that waits: %v", err)
		}
	}
	for _, c := range []*Commit{first, second} {
		select {
		case <-c.Done():
			t.Fatalf("an end landed without room: %v", c.Err())
		default:
		}
	}
	empty()
	must(t, errors.Join(second.Wait(), first.Err()))
	sound(t, j)

	empty = fillUp(t, dir)
	third := j.Submit(big(20, id(3)))
	must(t, j.Close())
	if err := third.Wait(); !errors.Is(err, handles.ErrPersistence) {
		t.Errorf("an end that cannot land when the journal is closed: %v", err)
	}
	empty()
	j = openIn(t, dir)
	if r, err := j.Run(id(3)); err != nil || !r.Live {
		t.Errorf("the run whose end did not land: %+v %v", r, err)
	}
	sound(t, j)
}

// S4-41: without room for the ends of what is running nothing more is admitted,
// though there is room for the admission itself.
func TestS4_41_NoReserveNoAdmission(t *testing.T) {
	t.Parallel()
	dir := tmpfs(t, "2m")
	j := openIn(t, dir)
	j.SetReserve(4 << 20)
	err := j.Submit(admitted(1, id(1)).batch()).Wait()
	if !errors.Is(err, handles.ErrPersistence) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("admission without reserve: %v", err)
	}
	if got := reserveSize(t, dir); got != 0 {
		t.Errorf("%d bytes are held by a reserve that was not got", got)
	}
	j.SetReserve(256 << 10)
	commit(t, j, admitted(2, id(2)))
	j.SetReserve(0)
	commit(t, j, admitted(3, id(3)))
	if got := reserveSize(t, dir); got != 0 {
		t.Errorf("%d bytes are held for nothing", got)
	}
}

// A full disk does not keep the journal from being opened: the reserve gives
// the room that the index of the WAL needs.
func TestS4_41_OpenOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := tmpfs(t, "4m")
	j := openIn(t, dir)
	j.SetReserve(1 << 20)
	commit(t, j, admitted(1, id(1)))
	must(t, j.Close())
	empty := fillUp(t, dir)
	j = openIn(t, dir)
	commit(t, j, ended(2, id(1)))
	sound(t, j)
	must(t, j.Close())
	empty()
}
