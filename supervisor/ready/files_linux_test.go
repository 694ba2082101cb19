package ready

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A file counts when it is there, however it comes and goes, and whatever of its
// path was missing.
func TestFile(t *testing.T) {
	files := NewFiles()
	defer files.Close()
	p := &Place{Files: files}
	for name, make := range map[string]func(dir string) error{
		"created": func(dir string) error { return os.WriteFile(dir+"/f", nil, 0o600) },
		"renamed": func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/.f", nil, 0o600), os.Rename(dir+"/.f", dir+"/f"))
		},
		"linked": func(dir string) error { return os.Symlink("/etc/passwd", dir+"/f") },
		"folder": func(dir string) error { return os.Mkdir(dir+"/f", 0o700) },
		"link to nothing": func(dir string) error {
			return errors.Join(os.Symlink("there", dir+"/f"), os.WriteFile(dir+"/there", nil, 0o600))
		},
	} {
		dir := t.TempDir()
		done := begun(t, p, "file:"+dir+"/f", false)
		if err := make(dir); err != nil {
			t.Fatal(err)
		}
		over(t, name, done)
		gone := begun(t, p, "file:"+dir+"/f", true)
		if err := os.Remove(dir + "/f"); err != nil {
			t.Fatal(err)
		}
		over(t, name+" gone", gone)
	}
}

// Folders on the way may be missing, made one by one, replaced, or be links that
// are changed.
func TestFileInFoldersToCome(t *testing.T) {
	p := &Place{}
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	done := begun(t, p, "file:"+dir+"/a/b/c/f", false)
	must(os.MkdirAll(dir+"/a/b", 0o700))
	must(os.MkdirAll(dir+"/a/b/c", 0o700))
	must(os.WriteFile(dir+"/a/b/c/f", nil, 0o600))
	over(t, "deep", done)

	must(os.MkdirAll(dir+"/new", 0o700))
	must(os.WriteFile(dir+"/new/x", nil, 0o600))
	must(os.Mkdir(dir+"/cur", 0o700))
	done = begun(t, p, "file:"+dir+"/cur/x", false)
	must(os.Rename(dir+"/cur", dir+"/old"))
	must(os.Rename(dir+"/new", dir+"/cur"))
	over(t, "replaced", done)

	must(os.MkdirAll(dir+"/top/sub", 0o700))
	must(os.MkdirAll(dir+"/top.new/sub", 0o700))
	must(os.WriteFile(dir+"/top.new/sub/z", nil, 0o600))
	done = begun(t, p, "file:"+dir+"/top/sub/z", false)
	must(os.Rename(dir+"/top", dir+"/top.old"))
	must(os.Rename(dir+"/top.new", dir+"/top"))
	over(t, "replaced with the folder above", done)

	must(os.MkdirAll(dir+"/r1", 0o700))
	must(os.MkdirAll(dir+"/r2", 0o700))
	must(os.WriteFile(dir+"/r2/y", nil, 0o600))
	must(os.MkdirAll(dir+"/links/of", 0o700))
	must(os.Symlink("../../r1", dir+"/links/of/cur"))
	done = begun(t, p, "file:"+dir+"/links/of/cur/y", false)
	must(os.Symlink("../../r2", dir+"/links/of/new"))
	must(os.Rename(dir+"/links/of/new", dir+"/links/of/cur"))
	over(t, "relinked", done)
	must(os.Symlink(dir+"/loop", dir+"/loop"))
	fails(t, "file:"+dir+"/loop/y", "too many levels")
}

// Many waits share one watcher, and end with their contexts.
func TestFilesAreShared(t *testing.T) {
	files := NewFiles()
	dir := t.TempDir()
	p := &Place{Files: files}
	var waits []<-chan error
	for range 20 {
		waits = append(waits, begun(t, p, "file:"+dir+"/f", false))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stray sync.WaitGroup
	for range 5 {
		stray.Go(func() { _ = p.Await(ctx, Cond{Kind: File, Path: dir + "/never"}, false, nil) })
	}
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, w := range waits {
		over(t, "shared", w)
	}
	cancel()
	stray.Wait()
	files.mu.Lock()
	left := len(files.waiters)
	files.mu.Unlock()
	if left > 0 {
		t.Errorf("%d folders are still watched", left)
	}
	files.Close()
}

// Where nothing can be watched it is looked at from time to time.
func TestFileWithoutWatches(t *testing.T) {
	files := NewFiles()
	files.Close()
	dir := t.TempDir()
	done := begun(t, &Place{Files: files}, "file:"+dir+"/f", false)
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	over(t, "polled", done)
}

func TestAwaitAll(t *testing.T) {
	dir := t.TempDir()
	yes, no := parse(t, "file:"+dir), parse(t, "file:"+dir+"/no")
	p := &Place{Once: true}
	for name, tc := range map[string]struct {
		conds     []Cond
		any, gone bool
		unmet     int
	}{
		"all": {[]Cond{yes, yes}, false, false, 0}, "one of two": {[]Cond{yes, no}, false, false, 1}, "any": {[]Cond{no, yes}, true, false, 0},
		"none of any": {[]Cond{no, no}, true, false, 2}, "gone": {[]Cond{no, no}, false, true, 0}, "not gone": {[]Cond{no, yes}, false, true, 1}, "any gone": {[]Cond{no, yes}, true, true, 0},
	} {
		unmet, err := p.AwaitAll(t.Context(), tc.conds, tc.any, tc.gone)
		if len(unmet) != tc.unmet || (err != nil) != (tc.unmet > 0) {
			t.Errorf("%s: %+v, %v", name, unmet, err)
		}
	}
}
