//go:build linux

package chaos

import (
	"maps"
	"slices"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// A model is what must hold of runs, sessions and inboxes, as plain data. It
// knows no process, no time and no journal.
type model struct {
	runs     []*modelRun
	sessions map[string]*modelSession
	batches  map[string]*modelBatch
	settled  map[string][]wire.Delivery // by session, newest first; At is not told
}

type modelSession struct {
	closed     bool
	generation int
	scopes     []modelScope
}

type modelScope struct {
	name, parent string
	cancelled    bool
}

// A modelBatch is who took it. An end is in it as long as its run says so.
type modelBatch struct {
	session, reader string
	dead            bool // the reader is
	settled         bool // something of it was acknowledged
}

type modelRun struct {
	id       handles.ID
	req      wire.Start
	front    bool
	status   handles.Status
	cause    handles.Cause
	code     int // of an end by itself
	delivery string
	batch    string
	told     bool // some reader was given it
	waiting  []string
}

func newModel() *model {
	return &model{
		sessions: map[string]*modelSession{"default": {generation: 1}}, batches: map[string]*modelBatch{},
		settled: map[string][]wire.Delivery{},
	}
}

func (r *modelRun) live() bool { return !r.status.Terminal() }
func (r *modelRun) owed() bool { return !r.live() && r.delivery == handles.DeliveryPending }

func (r *modelRun) needsPlace() bool { return needsPlace(r.req) }

func needsPlace(req wire.Start) bool {
	return awaited(req) && (!req.Foreground || req.BackgroundMS != nil)
}

func awaited(req wire.Start) bool {
	return req.Lease == "awaited" || req.Lease == "" && req.Session != "default"
}

func (m *model) of(session string, match func(*modelRun) bool) (list []*modelRun) {
	for _, r := range m.runs {
		if r.req.Session == session && match(r) {
			list = append(list, r)
		}
	}
	return list
}

func (m *model) parent(session string) *modelRun {
	for _, r := range m.of(session, (*modelRun).live) {
		if r.front {
			return r
		}
	}
	return nil
}

func (s *modelSession) scope(name string) *modelScope {
	for i := range s.scopes {
		if s.scopes[i].name == name {
			return &s.scopes[i]
		}
	}
	return nil
}

// inScope are the reasons not to start or open something in a scope.
func (s *modelSession) inScope(name string) (codes []handles.Code) {
	if name == "" {
		return nil
	}
	switch sc := s.scope(name); {
	case sc == nil:
		return []handles.Code{handles.CodeNotFound}
	case sc.cancelled:
		return []handles.Code{handles.CodeScope}
	}
	return nil
}

// refusals are the reasons to refuse a start; none: it is to be admitted.
func (m *model) refusals(req wire.Start) (codes []handles.Code) {
	s := m.sessions[req.Session]
	if s == nil {
		s = &modelSession{}
	}
	if s.closed {
		return []handles.Code{handles.CodeClosed}
	}
	codes = s.inScope(req.Scope)
	if req.Foreground && m.parent(req.Session) != nil {
		codes = append(codes, handles.CodeBusy)
	}
	places := len(m.of(req.Session, func(r *modelRun) bool { return r.owed() || r.live() && r.needsPlace() }))
	if needsPlace(req) && places >= wire.InboxSize {
		codes = append(codes, handles.CodeInboxFull)
	}
	if req.Name != "" && len(m.of(req.Session, func(r *modelRun) bool { return r.live() && r.req.Name == req.Name })) > 0 {
		codes = append(codes, handles.CodeNameTaken)
	}
	return codes
}

// noRestart are the reasons to refuse a restart of a live run before it is ended:
// those of its start but that its own name is taken.
func (m *model) noRestart(r *modelRun, req wire.Start) []handles.Code {
	if r.front && r.needsPlace() {
		return m.sessions[req.Session].inScope(req.Scope)
	}
	return slices.DeleteFunc(m.refusals(req), func(c handles.Code) bool { return c == handles.CodeNameTaken })
}

// admit adds a run; a session that was not there is.
func (m *model) admit(id handles.ID, req wire.Start) *modelRun {
	if m.sessions[req.Session] == nil {
		m.sessions[req.Session] = &modelSession{generation: 1}
	}
	r := &modelRun{id: id, req: req, front: req.Foreground, status: handles.Running, delivery: handles.DeliveryNone}
	if awaited(req) && !req.Foreground {
		r.delivery = handles.DeliveryPending
	}
	m.runs = append(m.runs, r)
	return r
}

// released makes a run in front one in the background.
func (r *modelRun) released() {
	r.front = false
	if awaited(r.req) {
		r.delivery = handles.DeliveryPending
	}
}

func (r *modelRun) ended(code int) {
	r.status, r.code = handles.Failed, code
	if code == 0 {
		r.status = handles.Completed
	}
}

func (r *modelRun) killed(cause handles.Cause) {
	if r.live() {
		r.status, r.cause = handles.Killed, cause
	}
}

// taken notes that a reader was given ends as one batch.
func (m *model) taken(runs []*modelRun, batch, reader string) {
	b := m.batches[batch]
	if b == nil {
		b = &modelBatch{session: runs[0].req.Session}
		m.batches[batch] = b
	}
	b.reader, b.dead = reader, false
	for _, r := range runs {
		r.batch, r.told = batch, true
	}
}

// free reports whether anybody may have what is in a batch.
func (m *model) free(batch string) bool { return batch == "" || m.batches[batch].dead }

func (m *model) inBatch(session, batch string) []*modelRun {
	return m.of(session, func(r *modelRun) bool { return r.owed() && r.batch == batch })
}

// next are the ends that a reader is to be given, by id, and the batch that
// they are in, "" = a new one: its own first, then a dead reader's, then what
// waits.
func (m *model) next(session, reader string, most int) (batch string, runs []*modelRun) {
	var own, dead []string
	for _, r := range m.of(session, (*modelRun).owed) {
		switch {
		case r.batch == "":
		case m.batches[r.batch].dead: // also when a new process bears the name of the old
			dead = append(dead, r.batch)
		case m.batches[r.batch].reader == reader:
			own = append(own, r.batch)
		}
	}
	switch {
	case len(own) > 0:
		batch = slices.Min(own)
	case len(dead) > 0:
		batch = slices.Min(dead)
	}
	runs = m.inBatch(session, batch)
	slices.SortFunc(runs, byID)
	if batch == "" && most > 0 && len(runs) > most {
		runs = runs[:most]
	}
	return batch, runs
}

// settle acknowledges a batch and returns how many ends that settled.
func (m *model) settle(session, batch, outcome string) int {
	runs := m.inBatch(session, batch)
	d := wire.Delivery{Batch: batch}
	for _, r := range runs {
		if outcome == "returned" {
			r.batch = ""
			continue
		}
		r.delivery = handles.DeliveryDelivered
		d.Handles = append(d.Handles, r.id)
	}
	if len(d.Handles) > 0 {
		slices.Sort(d.Handles)
		m.settled[session] = append([]wire.Delivery{d}, m.settled[session]...)
	}
	return len(runs)
}

// end ends the work of a session. What is owed is dropped.
func (m *model) end(session string, cause handles.Cause) (ended, dropped []handles.ID) {
	for _, r := range m.of(session, func(*modelRun) bool { return true }) {
		if r.live() {
			r.killed(cause)
			ended = append(ended, r.id)
		}
		if r.owed() {
			r.delivery = handles.DeliveryDropped
			dropped = append(dropped, r.id)
		}
	}
	slices.Sort(ended)
	slices.Sort(dropped)
	return ended, dropped
}

// cancelScope cancels a scope and those below it.
func (m *model) cancelScope(session, name string) (scopes []string, ended []handles.ID) {
	s := m.sessions[session]
	for i := range s.scopes {
		if sc := &s.scopes[i]; sc.name == name || slices.Contains(scopes, sc.parent) {
			sc.cancelled = true
			scopes = append(scopes, sc.name)
		}
	}
	for _, r := range m.of(session, (*modelRun).live) {
		if slices.Contains(scopes, r.req.Scope) {
			r.killed(handles.CauseScope)
			ended = append(ended, r.id)
		}
	}
	slices.Sort(ended)
	return scopes, ended
}

func (m *model) names() []string { return slices.Sorted(maps.Keys(m.sessions)) }

func byID(a, b *modelRun) int {
	switch {
	case a.id < b.id:
		return -1
	case a.id > b.id:
		return 1
	}
	return 0
}

func idsOf(runs []*modelRun) (ids []handles.ID) {
	for _, r := range runs {
		ids = append(ids, r.id)
	}
	slices.Sort(ids)
	return ids
}
