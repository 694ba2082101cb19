package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"procsup/handles"
)

// Records of runs that have ended are kept so long unless Config says
// otherwise, and looked through once a day.
const (
	defaultRetention = 7 * 24 * time.Hour
	retentionRound   = 24 * time.Hour
)

// retain removes what is too old, now and on each tick.
func (s *Supervisor) retain(tick <-chan time.Time) {
	defer s.chores.Done()
	for {
		s.removeBefore(time.Now().Add(-s.cfg.Retention))
		if s.cfg.Hooks != nil && s.cfg.Hooks.Retained != nil {
			s.cfg.Hooks.Retained()
		}
		select {
		case <-tick:
		case <-s.life.Done():
			return
		}
	}
}

// removeBefore removes the records of runs that ended before a moment, and the
// output of runs of which there is no record any more. What lives is left alone.
func (s *Supervisor) removeBefore(moment time.Time) {
	n, err := s.journal.Prune(moment, 0)
	if err != nil && s.life.Err() == nil {
		s.log.Error("remove old records", "before", moment, "err", err)
	}
	dirs := s.removeOutput(moment)
	if n > 0 || dirs > 0 {
		s.log.Info("removed what is too old", "before", moment, "records", n, "outputs", dirs)
	}
}

// removeOutput goes by what is on the disk, so that it also finds what a crash
// between the two removals left.
func (s *Supervisor) removeOutput(moment time.Time) (n int) {
	entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, "handles"))
	if errors.Is(err, fs.ErrNotExist) { // nothing was captured yet
		return 0
	}
	if err != nil {
		s.log.Error("look for old output", "err", err)
	}
	for _, e := range entries {
		id := handles.ID(e.Name())
		if !e.IsDir() || !strings.HasPrefix(e.Name(), handles.CommandPrefix) || !untouchedSince(s.dir(id), moment) {
			continue
		}
		// a run that lives is in the journal, too; an error is not "no such run"
		if _, err := s.journal.Run(string(id)); !errors.Is(err, handles.ErrNotFound) {
			continue
		}
		if err := os.RemoveAll(s.dir(id)); err != nil {
			s.log.Error("remove old output", "id", id, "err", err)
			continue
		}
		if s.quota != nil {
			s.quota.Forget(s.dir(id))
		}
		n++
	}
	return n
}

// untouchedSince reports whether a folder and all in it were written last
// before a moment. Records that a torn journal has lost keep their output for
// as long as others do.
func untouchedSince(dir string, moment time.Time) bool {
	paths := []string{dir}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	for _, p := range paths {
		if st, err := os.Lstat(p); err != nil || !st.ModTime().Before(moment) {
			return false
		}
	}
	return true
}
