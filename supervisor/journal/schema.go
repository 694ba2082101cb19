package journal

import (
	"errors"
	"fmt"

	"procsup/handles"
)

const (
	schemaVersion = 2
	applicationID = 0x70727375 // "prsu", at offset 68 of the file
)

// migrations[i] brings a journal from version i to i+1.
//
// Times are nanoseconds since 1970 in journal.at, milliseconds elsewhere.
// journal.keys are the idempotency keys that came with an entry, so that the
// table key can be made again; run.n is there because the rowid of spec names
// it; run.ended is when a run that has ended changed last; run.owed is
// whether its end waits to be delivered; session.changed is in milliseconds too.
var migrations = [schemaVersion]string{`
CREATE TABLE journal(seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL,
	run TEXT NOT NULL, body BLOB, keys TEXT);
CREATE INDEX journal_run ON journal(run, seq);
CREATE TABLE run(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, session TEXT NOT NULL, name TEXT NOT NULL,
	status TEXT NOT NULL, live INTEGER NOT NULL, created INTEGER NOT NULL, ended INTEGER NOT NULL,
	revision INTEGER NOT NULL, seq INTEGER NOT NULL, record BLOB);
CREATE INDEX run_created ON run(created, id);
CREATE INDEX run_session ON run(session, created, id);
CREATE INDEX run_live ON run(created, id) WHERE live = 1;
CREATE INDEX run_ended ON run(ended) WHERE live = 0;
CREATE INDEX run_name ON run(name, session, live, created, id) WHERE name <> '';
CREATE TABLE spec(n INTEGER PRIMARY KEY, spec BLOB NOT NULL);
CREATE TABLE key(key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, run TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX key_run ON key(run);
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES('pruned', 0), ('scrubbed', 0);
`, `
ALTER TABLE run ADD COLUMN owed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX run_owed ON run(created, id) WHERE owed = 1;
CREATE TABLE session(name TEXT PRIMARY KEY, live INTEGER NOT NULL, changed INTEGER NOT NULL,
	seq INTEGER NOT NULL, record BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX journal_delivered ON journal(seq) WHERE kind = 'delivered';
`}

// migrate brings the journal of c to schemaVersion, in one transaction.
func migrate(c *conn) error {
	v, err := c.number("PRAGMA user_version")
	switch {
	case err != nil:
		return err
	case v > schemaVersion:
		return newerSchema(v)
	case v == schemaVersion:
		return nil
	}
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for ; v < schemaVersion; v++ {
		if err := c.exec(migrations[v]); err != nil {
			return fmt.Errorf("migrate to version %d: %w", v+1, errors.Join(err, c.exec("ROLLBACK")))
		}
	}
	if err := c.exec(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", applicationID, schemaVersion)); err != nil {
		return errors.Join(err, c.exec("ROLLBACK"))
	}
	return nil
}

func newerSchema(v int64) error {
	return &handles.Error{
		Code:    handles.CodeSchemaNewer,
		Message: fmt.Sprintf("the journal is of version %d, this procsup knows %d", v, schemaVersion),
		Hint:    "use the procsup that wrote it, or another state directory",
	}
}
