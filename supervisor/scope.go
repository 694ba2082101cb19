package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// scope is a scope of the session, nil if there is none. s.mu is held.
func (sess *session) scope(name string) *handles.Scope {
	for i := range sess.rec.Scopes {
		if sess.rec.Scopes[i].Name == name {
			return &sess.rec.Scopes[i]
		}
	}
	return nil
}

// inScope refuses a start in a scope that is not open. s.mu is held.
func (sess *session) inScope(name string) error {
	if name == "" {
		return nil
	}
	sc := sess.scope(name)
	if sc == nil {
		return &handles.Error{Code: handles.CodeNotFound, ID: name, Message: fmt.Sprintf("session %s has no scope %s", sess.rec.Name, name), Hint: "procsup scope open " + name}
	}
	if sc.Cancelled != 0 {
		return &handles.Error{Code: handles.CodeScope, ID: name, Message: fmt.Sprintf("scope %s of session %s was cancelled and starts nothing", name, sess.rec.Name), Hint: "open another scope"}
	}
	return nil
}

// OpenScope opens a scope of a session: one token to cancel several runs by.
// What is opened again is left as it is.
func (s *Supervisor) OpenScope(_ context.Context, name string, req handles.Scope) (*handles.Scope, error) {
	if !goodName.MatchString(req.Name) {
		return nil, invalid("name", "%.80q is not a name (letters, digits and _.:@+- , at most 64)", req.Name)
	}
	s.mu.Lock()
	sess, err := s.open(name)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	sc, commit, err := s.openScope(sess, req)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return &sc, committed(commit, "record scope "+req.Name)
}

// open is a session that takes new work; one of a name that was never used is
// added by whoever gives it work. s.mu is held.
func (s *Supervisor) open(name string) (*session, error) {
	if name == "" {
		name = DefaultSession
	}
	if err := s.leaving(); err != nil {
		return nil, err
	}
	if !goodName.MatchString(name) {
		return nil, invalid("session", "%.80q is not a name (letters, digits and _.:@+- , at most 64)", name)
	}
	sess := s.sessions[name]
	switch {
	case sess == nil:
		return s.firstSession(name), nil
	case sess.closed():
		return nil, closedError(sess)
	}
	return sess, nil
}

// openScope adds it. s.mu is held.
func (s *Supervisor) openScope(sess *session, req handles.Scope) (handles.Scope, []*journal.Commit, error) {
	if sc := sess.scope(req.Name); sc != nil {
		if sc.Cancelled != 0 {
			return *sc, nil, sess.inScope(req.Name)
		}
		if sc.Parent != req.Parent {
			return *sc, nil, &handles.Error{Code: handles.CodeConflict, ID: req.Name, Message: fmt.Sprintf("scope %s is open already, below %q", req.Name, sc.Parent)}
		}
		return *sc, nil, nil
	}
	if err := sess.inScope(req.Parent); err != nil {
		return req, nil, err
	}
	if len(sess.rec.Scopes) >= wire.MaxScopes {
		return req, nil, &handles.Error{Code: handles.CodeFull, ID: sess.rec.Name, Message: fmt.Sprintf("session %s has %d scopes, which is its limit", sess.rec.Name, wire.MaxScopes), Hint: "procsup session reset takes them away"}
	}
	sc := handles.Scope{Name: req.Name, Parent: req.Parent}
	s.sessions[sess.rec.Name] = sess
	sess.rec.Scopes = append(sess.rec.Scopes, sc)
	return sc, []*journal.Commit{s.writeSession(sess, "scope_open", false)}, nil
}

// Scopes lists the scopes of a session, as they were opened.
func (s *Supervisor) Scopes(_ context.Context, name string) (*wire.Scopes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess, err := s.known(name)
	if err != nil {
		return nil, err
	}
	return &wire.Scopes{Scopes: append([]handles.Scope{}, sess.rec.Scopes...)}, nil
}

// CancelScope ends every run of a scope and of the scopes below it, and starts
// nothing in them any more. It returns when they have ended, or says which not.
func (s *Supervisor) CancelScope(ctx context.Context, name, scope string, req wire.EndSession) (*wire.ScopeReport, error) {
	e, err := endingOf(req, "cancel", "scope "+scope+" was cancelled")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	sess, err := s.known(name)
	if err == nil && sess.scope(scope) == nil {
		err = sess.inScope(scope)
	}
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	rep := &wire.ScopeReport{Cancelled: []string{}, Ended: []handles.ID{}, Still: []handles.ID{}}
	commits := s.cancelScopes(sess, scope, rep)
	var live []*run
	for _, r := range sess.live {
		if slices.Contains(rep.Cancelled, r.spec.Scope) {
			live = append(live, r)
		}
	}
	s.mu.Unlock()
	if err := committed(commits, "record the cancellation of scope "+scope); err != nil {
		return nil, err
	}
	var longest time.Duration
	for _, r := range live {
		d := e.decision(r)
		d.cause = handles.CauseScope
		s.decide(r, d)
		longest = max(longest, d.ladder.Grace)
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest+drainMax+time.Second)
	defer cancel()
	for _, r := range live {
		if r.endsWhile(ctx, bound) {
			rep.Ended = append(rep.Ended, r.id)
		} else {
			rep.Still = append(rep.Still, r.id)
		}
	}
	slices.Sort(rep.Ended)
	slices.Sort(rep.Still)
	return rep, nil
}

// cancelScopes marks a scope and those below it. A parent is always opened
// before its children. s.mu is held.
func (s *Supervisor) cancelScopes(sess *session, scope string, rep *wire.ScopeReport) []*journal.Commit {
	fresh := false
	for i := range sess.rec.Scopes {
		sc := &sess.rec.Scopes[i]
		if sc.Name != scope && !(sc.Parent != "" && slices.Contains(rep.Cancelled, sc.Parent)) {
			continue
		}
		rep.Cancelled = append(rep.Cancelled, sc.Name)
		if sc.Cancelled == 0 {
			sc.Cancelled, fresh = s.seq+1, true // of the entry that is written now
		}
	}
	if !fresh {
		return nil
	}
	return []*journal.Commit{s.writeSession(sess, "scope_cancelled", true)}
}
