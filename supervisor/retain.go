package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"procsup/capture"
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

// keepHouse is the chores of a life.
func (s *Supervisor) keepHouse() {
	defer s.chores.Done()
	s.measure()
	if s.cfg.Retention > 0 {
		s.retain(time.Tick(retentionRound))
	}
}

// measure counts the output of earlier lives towards the quota.
func (s *Supervisor) measure() {
	if s.quota == nil {
		return
	}
	if err := s.quota.Measure(s.life); err != nil && s.life.Err() == nil {
		s.log.Error("count old output", "err", err)
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
	err := capture.EachLog(s.life, filepath.Join(s.cfg.Dir, "handles"), 0, func(dir string) {
		if name := filepath.Base(dir); strings.HasPrefix(name, handles.CommandPrefix) && s.removeOld(handles.ID(name), moment) {
			n++
		}
	})
	if err != nil && s.life.Err() == nil {
		s.log.Error("look for old output", "err", err)
	}
	return n
}

// removeOld removes the output of a run of which there is no record any more,
// unless something was written after the moment.
func (s *Supervisor) removeOld(id handles.ID, moment time.Time) bool {
	if !untouchedSince(s.dir(id), moment) {
		return false
	}
	// a run that lives is in the journal, too; an error is not "no such run"
	if _, err := s.journal.Run(string(id)); !errors.Is(err, handles.ErrNotFound) {
		return false
	}
	if err := s.quota.Remove(s.dir(id)); err != nil {
		s.log.Error("remove old output", "id", id, "err", err)
		return false
	}
	return true
}

// untouchedSince reports whether a folder and all in it were written last
// before a moment. Records that a torn journal has lost keep their output for
// as long as others do.
func untouchedSince(dir string, moment time.Time) bool {
	if st, err := os.Lstat(dir); err != nil || !st.IsDir() || !st.ModTime().Before(moment) {
		return false
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if st, err := e.Info(); err != nil || !st.ModTime().Before(moment) {
			return false
		}
	}
	return true
}
