package supervisor

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// A session owns runs: it has an inbox, notices, scopes and at most one parent
// run. All of it is guarded by Supervisor.mu.
type session struct {
	rec    handles.Session // as the journal has it
	stored bool            // it is in the journal
	live   map[handles.ID]*run
	parent *run // the active parent run
	places int  // of the inbox, kept for ends to come
	owed   map[handles.ID]*owed
	armed  bool // the next end that is owed may be announced

	settling []*journal.Commit // the last acknowledgement
	notices  *handles.Ring[wire.Notice]
	base     int64         // number of the notice before the first
	bell     chan struct{} // closed at each change
	watch    *platform.Watch
	attached int  // connections that hold an attached session
	hushed   bool // its notices are closed
}

// A Caller is who asks, as the connection and its request say.
type Caller struct {
	Process platform.Identity // zero: not known, as in another pid namespace
	Token   string            // of the session it runs in; "" = of none: it may do everything
	Reader  string            // tells two readers of one process apart
}

// session gives the session of a name, and makes it if need be. s.mu is held.
func (s *Supervisor) session(name string) *session {
	if sess := s.sessions[name]; sess != nil {
		return sess
	}
	sess := s.firstSession(name)
	s.sessions[name] = sess
	return sess
}

// firstSession makes a session that is not there until it is added: what is
// refused leaves none behind. s.mu is held.
func (s *Supervisor) firstSession(name string) *session {
	sess := s.makeSession(handles.Session{Name: name, Status: handles.SessionOpen, Generation: 1, CreatedAt: time.Now().UTC()})
	sess.stored = name == DefaultSession // always there
	return sess
}

// newSession adds a session. s.mu is held.
func (s *Supervisor) newSession(rec handles.Session) *session {
	sess := s.makeSession(rec)
	s.sessions[rec.Name] = sess
	return sess
}

func (s *Supervisor) makeSession(rec handles.Session) *session {
	return &session{
		rec: rec, live: map[handles.ID]*run{}, owed: map[handles.ID]*owed{}, armed: true, base: s.journal.LastSeq(),
		notices: handles.NewRing[wire.Notice](wire.NoticeRing), bell: make(chan struct{}),
	}
}

// closed reports whether it takes no new work.
func (sess *session) closed() bool { return sess.rec.Status == handles.SessionClosed }

// changed wakes who waits for a change. s.mu is held.
func (sess *session) changed() {
	close(sess.bell)
	sess.bell = make(chan struct{})
}

// view is the record with what changes all the time, and without its token.
func (sess *session) view() *handles.Session {
	v := sess.rec
	v.Token = ""
	v.Scopes = slices.Clone(v.Scopes)
	v.Live, v.Pending = len(sess.live), len(sess.owed)
	if sess.parent != nil {
		v.Active = sess.parent.id
	}
	return &v
}

// writeSession puts the session as it is into the journal. s.mu is held.
func (s *Supervisor) writeSession(sess *session, kind string, must bool) *journal.Commit {
	sess.rec.Seq = s.next()
	sess.stored = true
	rec, err := json.Marshal(sess.rec)
	if err != nil {
		panic("marshal session: " + err.Error()) // plain data
	}
	body, err := json.Marshal(map[string]any{"session": json.RawMessage(rec)})
	if err != nil {
		panic("marshal entry: " + err.Error()) // plain data
	}
	return s.journal.Submit(journal.Batch{
		Entries:  []journal.Entry{{Seq: sess.rec.Seq, At: time.Now().UTC(), Kind: kind, Run: journal.SessionEntry(sess.rec.Name), Body: body}},
		Sessions: []journal.Session{{Name: sess.rec.Name, Live: !sess.closed(), Seq: sess.rec.Seq, Record: rec}},
		Must:     must,
	})
}

// known is a session that exists. s.mu is held.
func (s *Supervisor) known(name string) (*session, error) {
	if name == "" {
		name = DefaultSession
	}
	if name == DefaultSession {
		return s.session(name), nil
	}
	if sess := s.sessions[name]; sess != nil {
		return sess, nil
	}
	return nil, &handles.Error{Code: handles.CodeNotFound, ID: name, Message: fmt.Sprintf("no session %q", name), Hint: "procsup session list shows them"}
}

func closedError(sess *session) error {
	return &handles.Error{
		Code: handles.CodeClosed, ID: sess.rec.Name,
		Message: fmt.Sprintf("session %s is closed and takes no new work (%s)", sess.rec.Name, sess.rec.Why),
		Hint:    "procsup session open " + sess.rec.Name + " opens it anew",
	}
}

// OpenSession opens a session, or gives the open one of that name. A process
// that it is bound to must see the same process numbers as the daemon.
func (s *Supervisor) OpenSession(_ context.Context, req wire.OpenSession, who Caller) (*handles.Session, error) {
	return s.openSession(req, who, false)
}

func (s *Supervisor) openSession(req wire.OpenSession, who Caller, attached bool) (*handles.Session, error) {
	if req.Name == "" {
		req.Name = handles.NewSessionName()
	}
	if !goodName.MatchString(req.Name) {
		return nil, invalid("name", "%.80q is not a name (letters, digits and _.:@+- , at most 64)", req.Name)
	}
	if req.Name == DefaultSession && (req.BindPID != 0 || attached) {
		return nil, invalid("name", "the session %s belongs to no process", DefaultSession)
	}
	bind, err := bindTo(req.BindPID, who)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if err := s.leaving(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	sess, commit := s.reopen(req.Name, bind, who, attached)
	v := sess.view()
	v.Token = sess.rec.Token
	s.mu.Unlock()
	if commit != nil {
		if err := commit.Wait(); err != nil {
			return nil, fmt.Errorf("record session %s: %w", req.Name, err)
		}
	}
	s.watchBind(sess)
	return v, nil
}

// reopen makes the session of a name be open; commit is nil when it was, and
// nothing is new. s.mu is held.
func (s *Supervisor) reopen(name string, bind *handles.Exec, who Caller, attached bool) (sess *session, commit *journal.Commit) {
	sess = s.sessions[name]
	if sess != nil && !sess.closed() && sess.stored && sess.rec.Token != "" && bind == nil && sess.rec.Attached == attached {
		return sess, nil
	}
	if sess == nil || sess.closed() {
		rec := handles.Session{Name: name, Status: handles.SessionOpen, Generation: 1, CreatedAt: time.Now().UTC()}
		if sess != nil {
			rec.Generation = sess.rec.Generation + 1
		}
		sess = s.newSession(rec)
	}
	if sess.rec.Token == "" {
		sess.rec.Token = newToken()
	}
	sess.rec.Creator, sess.rec.Attached = s.sessionOfToken(who.Token), attached
	if bind != nil {
		sess.rec.Bind = bind
	}
	return sess, s.writeSession(sess, "session_open", false)
}

func newToken() string {
	var b [16]byte
	platform.Random(b[:])
	return hex.EncodeToString(b[:])
}

// bindTo is the identity of the process that a session is bound to.
func bindTo(pid int, who Caller) (*handles.Exec, error) {
	if pid == 0 {
		return nil, nil
	}
	if pid < 0 {
		return nil, invalid("bind_pid", "%d is no process", pid)
	}
	if who.Process.PID == 0 || !platform.SamePIDs(who.Process.PID) {
		return nil, invalid("bind_pid", "the caller is in another pid namespace than the daemon: %d would be another process here", pid)
	}
	id, err := platform.Identify(pid)
	if err != nil || id.Liveness() != platform.Live {
		return nil, invalid("bind_pid", "process %d does not live", pid)
	}
	return &handles.Exec{BootID: id.BootID, PID: id.PID, StartTicks: id.StartTicks}, nil
}

// watchBind closes the session when the process that it is bound to ends.
func (s *Supervisor) watchBind(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := sess.rec.Bind
	if b == nil || sess.closed() {
		return
	}
	if sess.watch != nil {
		sess.watch.Close()
		sess.watch = nil
	}
	why := fmt.Sprintf("process %d, which it was bound to, ended", b.PID)
	w, err := platform.WatchProcess(identity(b))
	switch {
	case errors.Is(err, platform.ErrGone):
		go s.endSession(context.Background(), sess, ending{kind: "session_close", by: "host", why: why, closes: true}) // bounded by the ladders
		return
	case err != nil:
		s.log.Error("watch the process of a session", "session", sess.rec.Name, "pid", b.PID, "err", err)
		return
	}
	sess.watch = w
	go func() { // ends with that process, or with this one
		select {
		case <-w.Done():
			_, _ = s.endSession(context.Background(), sess, ending{kind: "session_close", by: "host", why: why, closes: true})
		case <-s.life.Done():
		}
		w.Close()
	}()
}

func identity(e *handles.Exec) platform.Identity {
	return platform.Identity{BootID: e.BootID, PID: e.PID, StartTicks: e.StartTicks}
}

// sessionOfToken is the session that a token was given for; "" = of none.
// s.mu is held.
func (s *Supervisor) sessionOfToken(token string) string {
	if token == "" {
		return ""
	}
	for name, sess := range s.sessions {
		if sess.rec.Token == token {
			return name
		}
	}
	return ""
}

// mayEnd refuses a caller who runs in a session and wants to end one that is
// neither its own nor was opened from within it. It is hygiene, not a wall: a
// process of the same user can leave the token away. s.mu is held.
func (s *Supervisor) mayEnd(who Caller, name string) error {
	if who.Token == "" {
		return nil
	}
	own := s.sessionOfToken(who.Token)
	for at, n := name, 0; own != "" && at != "" && n < 100; n++ {
		if at == own {
			return nil
		}
		sess := s.sessions[at]
		if sess == nil {
			break
		}
		at = sess.rec.Creator
	}
	return &handles.Error{
		Code: handles.CodeForbidden, ID: name, Message: fmt.Sprintf("session %s was not opened from within the session that the caller runs in", name),
		Hint: "do it from outside of any session",
	}
}

// MayStop refuses a caller who runs in a session and wants to end the daemon.
func (s *Supervisor) MayStop(who Caller) error {
	if who.Token == "" {
		return nil
	}
	return &handles.Error{Code: handles.CodeForbidden, Message: "a command of a session may not end the daemon", Hint: "do it from outside of any session"}
}

// Sessions lists them by name: the open ones, or all.
func (s *Supervisor) Sessions(_ context.Context, all bool) (*wire.SessionList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session(DefaultSession)
	list := &wire.SessionList{Sessions: []handles.Session{}}
	for _, sess := range s.sessions {
		if all || !sess.closed() {
			list.Sessions = append(list.Sessions, *sess.view())
		}
	}
	slices.SortFunc(list.Sessions, func(a, b handles.Session) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Session is one session.
func (s *Supervisor) Session(_ context.Context, name string) (*handles.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess, err := s.known(name)
	if err != nil {
		return nil, err
	}
	return sess.view(), nil
}

// recoverSessions takes up the sessions of the journal and what they are owed.
func (s *Supervisor) recoverSessions() error {
	rows, err := s.journal.Sessions()
	if err != nil {
		return fmt.Errorf("recover sessions: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range rows {
		var rec handles.Session
		if err := json.Unmarshal(row.Record, &rec); err != nil {
			return fmt.Errorf("read session %s: %w", row.Name, err)
		}
		s.newSession(rec).stored = true
	}
	return s.recoverOwed()
}

// resumeSessions goes on watching what sessions are bound to, once runs are
// taken up. An attached session is given a moment to be attached again.
func (s *Supervisor) resumeSessions() {
	s.mu.Lock()
	all := make([]*session, 0, len(s.sessions))
	for _, sess := range s.sessions {
		all = append(all, sess)
	}
	s.mu.Unlock()
	for _, sess := range all {
		s.watchBind(sess)
		s.finishEnding(sess)
		s.mu.Lock()
		if sess.closed() && len(sess.live) == 0 {
			s.hush(sess)
		}
		orphaned := sess.rec.Attached && !sess.closed()
		s.mu.Unlock()
		if orphaned {
			go s.awaitAttach(sess) // ends after attachGrace, or with this process
		}
	}
}

// finishEnding does what is left of an end that was decided, and cut short by the
// end of the last supervisor: nobody may ask for it again.
func (s *Supervisor) finishEnding(sess *session) {
	s.mu.Lock()
	closed, why := sess.closed() && len(sess.live)+len(sess.owed) > 0, sess.rec.Why
	var cut []*run
	for _, r := range sess.live {
		if sc := sess.scope(r.spec.Scope); sc != nil && sc.Cancelled != 0 {
			cut = append(cut, r)
		}
	}
	s.mu.Unlock()
	for _, r := range cut {
		s.decide(r, decision{kind: "cancel", cause: handles.CauseScope, by: "host", reason: "scope " + r.spec.Scope + " was cancelled", ladder: ladder(r.spec)})
	}
	if closed {
		go s.endSession(context.Background(), sess, ending{kind: "session_close", by: "host", why: why, closes: true}) // bounded by the ladders
	}
}
