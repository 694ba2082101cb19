package journal

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
)

// dsn is where the journal is and what each connection to it is set to. Pool
// connections are opened anew, so all of it is in here.
func dsn(path string, pragmas ...string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path // C:/…
	}
	q := url.Values{"mode": {"rw"}, "_txlock": {"immediate"}}
	for _, p := range append([]string{"busy_timeout(5000)"}, pragmas...) {
		q.Add("_pragma", p)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// connect opens a connection below database/sql.
func connect(dsn string) (*conn, error) {
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	d, err := c.Connect(context.Background())
	if err != nil {
		return nil, err
	}
	return &conn{Conn: d}, nil
}

// A conn is the connection that writes. It is below database/sql: one goroutine
// has it, and what database/sql does for others would be half of a commit.
type conn struct {
	driver.Conn
	begin, commit, rollback   *stmt
	entry, insert, live, end  *stmt
	spec, key, session, scrub *stmt
}

// A stmt is a prepared statement with room for its arguments.
type stmt struct {
	driver.Stmt
	args []driver.NamedValue
}

func (c *conn) prepare() error {
	for _, s := range []struct {
		to  **stmt
		sql string
	}{
		{&c.begin, "BEGIN IMMEDIATE"},
		{&c.commit, "COMMIT"},
		{&c.rollback, "ROLLBACK"},
		{&c.entry, "INSERT INTO journal(seq, at, kind, run, body, keys) VALUES(?, ?, ?, ?, ?, ?)"},
		{&c.insert, "INSERT INTO run(id, session, name, status, live, created, ended, revision, seq, record, owed)" +
			" VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO NOTHING"},
		// session, name and created stay, and so their indexes are not touched
		{&c.live, "UPDATE run SET status = ?, revision = ?, seq = ?, record = ? WHERE id = ? AND live = 1"},
		{&c.end, "UPDATE run SET status = ?, revision = ?, seq = ?, record = ?, live = 0, ended = ?, owed = ? WHERE id = ?"},
		{&c.spec, "INSERT INTO spec(n, spec) SELECT n, ? FROM run WHERE id = ? ON CONFLICT(n) DO UPDATE SET spec = excluded.spec"},
		{&c.key, "INSERT INTO key(key, fingerprint, run) VALUES(?, ?, ?)"},
		{&c.session, "INSERT INTO session(name, live, changed, seq, record) VALUES(?, ?, ?, ?, ?) ON CONFLICT(name) DO UPDATE SET" +
			" live = excluded.live, changed = excluded.changed, seq = excluded.seq, record = excluded.record"},
		{&c.scrub, "UPDATE meta SET value = value + 1 WHERE name = 'scrubbed'"},
	} {
		var err error
		if *s.to, err = c.statement(s.sql); err != nil {
			return err
		}
	}
	return nil
}

// statement prepares text. Each of its parameters is a question mark.
func (c *conn) statement(text string) (*stmt, error) {
	p, err := c.Prepare(text)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", text, err)
	}
	s := &stmt{p, make([]driver.NamedValue, strings.Count(text, "?"))}
	for i := range s.args {
		s.args[i].Ordinal = i + 1
	}
	return s, nil
}

// exec runs statements that need no argument.
func (c *conn) exec(sql string) error {
	_, err := c.Conn.(driver.ExecerContext).ExecContext(context.Background(), sql, nil)
	return err
}

// number is the first column of the first row.
func (c *conn) number(sql string) (int64, error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(context.Background(), sql, nil)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	v := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(v); err != nil {
		return 0, fmt.Errorf("%s: %w", sql, err)
	}
	n, ok := v[0].(int64)
	if !ok {
		return 0, fmt.Errorf("%s: %v is not a number", sql, v[0])
	}
	return n, nil
}

// texts are the first column of all rows.
func (c *conn) texts(sql string, args ...driver.Value) (all []string, err error) {
	named := make([]driver.NamedValue, len(args))
	for i, a := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(context.Background(), sql, named)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	v := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(v); err {
		case nil:
			all = append(all, fmt.Sprint(v[0]))
		case io.EOF:
			return all, nil
		default:
			return nil, err
		}
	}
}

// close lets go of the statements and the connection.
func (c *conn) close() error {
	for _, s := range []*stmt{c.begin, c.commit, c.rollback, c.entry, c.insert, c.live, c.end, c.spec, c.key, c.session, c.scrub} {
		if s != nil {
			s.Close()
		}
	}
	return c.Close()
}

// run executes s and says how many rows it changed.
func (s *stmt) run(args ...driver.Value) (int64, error) {
	for i, a := range args {
		s.args[i].Value = a
	}
	r, err := s.Stmt.(driver.StmtExecContext).ExecContext(context.Background(), s.args)
	release(s.args)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// release lets go of what the arguments point to.
func release(args []driver.NamedValue) {
	for i := range args {
		args[i].Value = nil
	}
}
