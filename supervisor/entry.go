package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// batch is the entry and the projections of one change of a run. Every entry
// carries the whole record, so that projections can be rebuilt.
func batch(r *run, kind string, more map[string]any) journal.Batch {
	row, body := projection(&r.rec, more)
	row.Created = r.created
	b := journal.Batch{Must: kind != "admitted"} // what has happened is recorded; only new work may be refused
	if kind == "admitted" || kind == "found" {   // the first of its run
		row.Spec = specJSON(r.spec)
		body = member(body, "spec", row.Spec)
		if r.spec.Idempotency != "" {
			b.Keys = []journal.Key{{Key: r.spec.Idempotency, Fingerprint: fingerprint(r.spec), Run: string(r.id)}}
			body = member(body, "key", plain(b.Keys[0]))
		}
	}
	return entered(b, row, kind, body)
}

// recordBatch is batch for a run that has ended.
func recordBatch(rec *handles.Record, kind string, more map[string]any) journal.Batch {
	row, body := projection(rec, more)
	return entered(journal.Batch{Must: true}, row, kind, body)
}

// projection is the row of a record, and the members of its entry's body.
func projection(r *handles.Record, more map[string]any) (journal.Run, []byte) {
	rec := plain(r)
	body := member(make([]byte, 0, 2*len(rec)+64), "record", rec)
	for k, v := range more {
		body = member(body, k, plain(v))
	}
	live := !r.Status.Terminal()
	return journal.Run{
		ID: string(r.HandleID), Session: r.SessionID, Name: r.Name, Status: string(r.Status), Live: live,
		Revision: r.Revision, Seq: r.Seq, Record: rec, Owed: !live && awaited(r),
	}, body
}

// member adds to the members of an object: json.Marshal would read again, byte by
// byte, what it has just written. name needs no quoting.
func member(body []byte, name string, value []byte) []byte {
	if len(body) > 0 {
		body = append(body, ',')
	}
	body = append(append(append(body, '"'), name...), '"', ':')
	return append(body, value...)
}

// plain is the JSON of plain data.
func plain(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("marshal for the journal: " + err.Error())
	}
	return b
}

// entered completes a batch of one entry.
func entered(b journal.Batch, row journal.Run, kind string, members []byte) journal.Batch {
	text := append(append(append(make([]byte, 0, len(members)+2), '{'), members...), '}')
	b.Entries = []journal.Entry{{Seq: row.Seq, At: time.Now().UTC(), Kind: kind, Run: row.ID, Body: text}}
	b.Runs = []journal.Run{row}
	return b
}

// specJSON is what restart needs; without the environment if that was asked.
func specJSON(spec wire.Start) []byte {
	if spec.NoStoreEnv {
		spec.Env = nil
	}
	return plain(spec)
}

func stopID(id handles.ID, seq int64) string {
	return string(id) + "/stop/" + strconv.FormatInt(seq, 10)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// A replay says that a start came before with the same idempotency key.
type replay struct {
	live *run // nil: it has ended
	id   handles.ID
}

func (*replay) Error() string { return "the idempotency key was seen before" }

// lookUp finds what the journal knows of a request's key; nil = nothing. It
// reads a file, so s.mu is not held. keyEnds says for how long that is all there
// is to know: a key is in s.keys until the end of its run is in the journal.
func (s *Supervisor) lookUp(spec wire.Start) (k *journal.Key, keyEnds int, err error) {
	s.mu.Lock()
	live, keyEnds := s.keys[spec.Idempotency], s.keyEnds
	s.mu.Unlock()
	if spec.Idempotency == "" || live != nil {
		return nil, keyEnds, nil
	}
	found, ok, err := s.journal.Key(spec.Idempotency)
	switch {
	case err != nil:
		return nil, keyEnds, fmt.Errorf("look up idempotency key: %w", err)
	case ok:
		k = &found
	}
	return k, keyEnds, nil
}

// replay finds the first answer of a key, or refuses another request under the
// same key. k is what the journal knows of it. s.mu is held.
func (s *Supervisor) replay(spec wire.Start, k *journal.Key) error {
	if spec.Idempotency == "" {
		return nil
	}
	print, id := "", handles.ID("")
	switch r := s.keys[spec.Idempotency]; {
	case r != nil:
		print, id = fingerprint(r.spec), r.id
	case k != nil:
		print, id = k.Fingerprint, handles.ID(k.Run)
	default:
		return nil
	}
	if print != fingerprint(spec) {
		return &handles.Error{Code: handles.CodeKeyConflict, ID: string(id), Message: "the idempotency key was used for another start, " + string(id) + ": its command, directory, environment or options are not the same", Hint: "use a new key for a new start"}
	}
	return &replay{live: s.runs[id], id: id}
}

// replayed gives the first answer again, once there is one.
func (s *Supervisor) replayed(ctx context.Context, p *replay, req wire.Start, who *Caller) (*wire.Started, error) {
	if p.live != nil {
		if err := p.live.awaitStarted(ctx); err != nil {
			return nil, err
		}
	}
	if req.BackgroundMS != nil && !req.Foreground {
		if who != nil {
			defer s.claim(p.live, *who)()
		}
		a, err := s.inFront(ctx, p.live, p.id, millis(*req.BackgroundMS), who)
		if a != nil {
			a.Replayed = true
		}
		return a, err
	}
	rec, err := s.Show(ctx, string(p.id), "")
	if err != nil {
		return nil, err
	}
	a := started(*rec, s.dir(p.id))
	a.Replayed = true
	return a, nil
}

// awaitStarted waits until the start has an answer.
func (r *run) awaitStarted(ctx context.Context) error {
	for {
		rec, bell := r.state()
		if rec.Status != handles.Starting {
			return nil
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// answer is that of the start. s.mu is held.
func (r *run) answer() *wire.Started { return started(r.rec, r.s.dir(r.id)) }

// envelope is the answer of a start that is over. It is given once.
func (r *run) envelope() *wire.Started {
	a := r.atStart
	r.atStart = nil // whoever runs long need not keep it
	return a
}

// started is the envelope of a start.
func started(rec handles.Record, dir string) *wire.Started {
	return &wire.Started{
		HandleID: rec.HandleID, CommandID: rec.HandleID, StartedAt: rec.StartedAt, Status: rec.Status,
		Descriptor: rec.Descriptor, Name: rec.Name, SessionID: rec.SessionID,
		PID: rec.PID, GroupID: rec.GroupID, Exec: rec.ExecIdentity,
		OutputPath: dir + "/stdout", StdoutPath: dir + "/stdout", StderrPath: dir + "/stderr",
		Sandbox: wire.Sandbox{Kind: "none"},
		Error:   rec.Error, SpawnError: rec.SpawnError, Revision: rec.Revision, Seq: rec.Seq,
	}
}

// startOf is the start of a run as the journal kept it.
func startOf(row journal.Run) (spec wire.Start) {
	_ = json.Unmarshal(row.Spec, &spec) // an old or damaged one: defaults
	if spec.Session == "" {
		spec.Session, spec.Name = row.Session, row.Name
	}
	return spec
}
