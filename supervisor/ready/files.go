package ready

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

var errNoFile = errors.New("there is no such file")

// Files tells when something changes in folders, to any number of waits, through
// one watcher of the system's. A folder is watched only while somebody waits for
// it; a file never is. Close it.
type Files struct {
	mu      sync.Mutex
	w       *fsnotify.Watcher
	waiters map[string][]chan struct{} // by folder
	stale   []string                   // folders that nobody waits for any more
	sweep   chan struct{}              // there are such
	closed  bool
	done    chan struct{}
}

// NewFiles makes one. It opens nothing before it is used.
func NewFiles() *Files {
	return &Files{waiters: map[string][]chan struct{}{}, sweep: make(chan struct{}, 1)}
}

// Close ends it. Waits go on by looking from time to time.
func (f *Files) Close() {
	f.mu.Lock()
	w, done := f.w, f.done
	f.closed = true
	f.mu.Unlock()
	if w != nil {
		w.Close()
		<-done
	}
}

// watch has bell rung at each change in a folder; false when that cannot be had.
func (f *Files) watch(dir string, bell chan struct{}) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	if f.w == nil {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			return false
		}
		f.w, f.done = w, make(chan struct{})
		go f.dispatch(w, f.done) // ends by Close
	}
	if f.w.Add(dir) != nil { // also again: another folder may be there by now under this name
		return false
	}
	if !slices.Contains(f.waiters[dir], bell) {
		f.waiters[dir] = append(f.waiters[dir], bell)
	}
	return true
}

// unwatch ends it. The system's watch is taken away later: that can take the
// kernel milliseconds (synchronize_srcu), which whoever is ready need not wait for.
func (f *Files) unwatch(dir string, bell chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiters[dir]) == 0 {
		return // it could not be watched
	}
	rest := slices.DeleteFunc(f.waiters[dir], func(b chan struct{}) bool { return b == bell })
	if f.waiters[dir] = rest; len(rest) > 0 {
		return
	}
	delete(f.waiters, dir)
	f.stale = append(f.stale, dir)
	select {
	case f.sweep <- struct{}{}:
	default: // one is pending
	}
}

func (f *Files) dispatch(w *fsnotify.Watcher, done chan struct{}) {
	defer close(done)
	for {
		select {
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			f.ring(e)
		case _, ok := <-w.Errors: // such as an overflow of the queue
			if !ok {
				return
			}
			f.ring(fsnotify.Event{})
		case <-f.sweep:
			f.drop(w)
		}
	}
}

// drop takes away watches that nobody needs.
func (f *Files) drop(w *fsnotify.Watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, dir := range f.stale {
		if len(f.waiters[dir]) == 0 {
			_ = w.Remove(dir) // the folder may be gone, and its watch with it
		}
	}
	f.stale = nil
}

// ring wakes who waits for the folder of an event, or for that itself; for an
// event of nothing, everybody.
func (f *Files) ring(e fsnotify.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for dir, bells := range f.waiters {
		if e.Name != "" && (e.Has(fsnotify.Write) || filepath.Dir(e.Name) != dir && e.Name != dir) {
			continue
		}
		for _, b := range bells {
			select {
			case b <- struct{}{}:
			default: // one is pending
			}
		}
	}
}

// awaitFile waits until a path exists, or with gone until it does not. It watches
// the folders in which that is decided: the nearest one that is there, that one's
// parent, and those of symbolic links on the way.
func (p *Place) awaitFile(ctx context.Context, path string, gone bool, tried func(error)) error {
	f := p.Files
	if f == nil {
		f = NewFiles()
		defer f.Close()
	}
	bell := make(chan struct{}, 1)
	watched := map[string]bool{}
	defer func() {
		for dir := range watched {
			f.unwatch(dir, bell)
		}
	}()
	began := time.Now()
	for {
		dirs := folders(path)
		for dir := range watched {
			if !slices.Contains(dirs, dir) {
				f.unwatch(dir, bell)
				delete(watched, dir)
			}
		}
		all := true
		for _, dir := range dirs {
			watched[dir] = true
			all = f.watch(dir, bell) && all
		}
		if all && !slices.Equal(dirs, folders(path)) { // it changed before it was watched
			continue
		}
		_, err := os.Stat(path) // after the watch was set
		if (err == nil) != gone {
			return nil
		}
		if gone {
			err = errHolds
		} else if errors.Is(err, os.ErrNotExist) {
			err = errNoFile
		}
		tried(err)
		if p.Once {
			return ErrNotNow
		}
		if err := sleep(ctx, bell, all, began); err != nil {
			return err
		}
	}
}

// sleep waits for a change; where not all could be watched, only for a moment.
func sleep(ctx context.Context, bell <-chan struct{}, all bool, began time.Time) error {
	var timeout <-chan time.Time
	if !all {
		t := time.NewTimer(pause(time.Since(began)))
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-bell:
	case <-timeout:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// folders are those in which it is decided whether a path exists.
func folders(path string) []string {
	var out []string
	add := func(dir string) {
		if !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	at, rest := "/", strings.Split(strings.Trim(path, "/"), "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		next := filepath.Join(at, name)
		st, err := os.Lstat(next)
		if err != nil { // here it ends
			add(at)
			add(filepath.Dir(at))
			return out
		}
		rest = rest[1:]
		if st.Mode()&os.ModeSymlink == 0 {
			at = next
			continue
		}
		add(at)
		to, err := os.Readlink(next)
		if links++; err != nil || links > 40 { // as the kernel has it, path_resolution(7)
			return out
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(strings.Trim(to, "/"), "/"), rest...)
	}
	add(filepath.Dir(at)) // it is there: its folder says when it goes
	add(filepath.Dir(filepath.Dir(at)))
	return out
}
