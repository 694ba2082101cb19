package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// needTool skips a test whose program is not there; with PROCSUP_NO_SKIP, as in
// CI, that is a failure.
func needTool(t *testing.T, tool string) string {
	t.Helper()
	path, err := exec.LookPath(tool)
	if err == nil {
		return path
	}
	if os.Getenv("PROCSUP_NO_SKIP") != "" {
		t.Fatalf("%s is not installed", tool)
	}
	t.Skipf("%s is not installed", tool)
	return ""
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// up starts a real service and waits for it by procsup's word alone.
func (b *bench) up(t *testing.T, args ...string) (string, *handles.Record) {
	t.Helper()
	h := b.start(append([]string{"--ready-timeout", "30s"}, args...)...)
	var w wire.ReadyWaited
	r := b.run("wait-ready", h, "--json")
	if json.Unmarshal([]byte(r.out), &w) != nil || r.code != 0 || w.Record.Readiness.State != handles.ReadyNow {
		t.Fatalf("%q: exit %d %s\n%s\n%s", args, r.code, r.err, r.out, b.run("logs", h).out)
	}
	return h, w.Record
}

// dial wants what is ready to accept a connection at once.
func dial(t *testing.T, network, addr string) {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatalf("it is ready, and %v", err)
	}
	conn.Close()
}

func TestServiceRedis(t *testing.T) {
	b := newBench(t)
	redis, port := needTool(t, "redis-server"), freePort(t)
	h, rec := b.up(t, "--lease", "service", "--dir", t.TempDir(), "--ready", "notify", "--ready", "output:Ready to accept connections", "--ready", "tcp:127.0.0.1:"+port,
		"--", redis, "--supervised", "systemd", "--save", "", "--bind", "127.0.0.1", "--port", port)
	dial(t, "tcp", "127.0.0.1:"+port)
	if v := rec.Readiness; v.Status != "Ready to accept connections" || v.Ignored != (handles.Ignored{}) {
		t.Errorf("%+v", v)
	}
	b.want(0, "cancel", h)
	if rec := b.show(h); rec.Readiness.State != handles.ReadyStopping || !rec.Graceful { // STOPPING=1 on TERM
		t.Errorf("%s, %+v", outcomeText(rec), rec.Readiness)
	}
}

func TestServiceGunicorn(t *testing.T) {
	b := newBench(t)
	gunicorn, port, dir := needTool(t, "gunicorn"), freePort(t), t.TempDir()
	app := "def app(environ, start):\n    start('204 No Content', [])\n    return []\n"
	if err := os.WriteFile(filepath.Join(dir, "web.py"), []byte(app), 0o600); err != nil {
		t.Fatal(err)
	}
	h, rec := b.up(t, "--dir", dir, "--ready", "notify", "--ready", "http://127.0.0.1:"+port+"/=204", "--", gunicorn, "--bind", "127.0.0.1:"+port, "web:app")
	if s := rec.Readiness.Status; s != "Gunicorn arbiter booted" {
		t.Errorf("status %q", s)
	}
	b.want(0, "cancel", h)
}

// systemd-notify speaks in its parent's name, and waits for a barrier.
func TestServiceSystemdNotify(t *testing.T) {
	b := newBench(t)
	needTool(t, "systemd-notify")
	h, rec := b.up(t, "--ready", "notify", "--", "sh", "-c", "systemd-notify --ready --status='from a shell'; echo told; exec sleep 600")
	if s := rec.Readiness.Status; s != "from a shell" {
		t.Errorf("status %q", s)
	}
	b.want(0, "wait-output", h, "told")
	b.want(0, "cancel", h)
}

// PostgreSQL refuses to be root: it runs as another user, each of its processes
// in a session of its own.
func TestServicePostgres(t *testing.T) {
	b := newBench(t)
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		needTool(t, "postgres of Debian")
	}
	dir, err := os.MkdirTemp("", "pg") // short: a socket is made in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	as, user := []string{}, "postgres"
	if os.Geteuid() == 0 {
		as = []string{needTool(t, "setpriv"), "--reuid=" + user, "--regid=" + user, "--clear-groups"}
		if out, err := exec.Command("chown", user, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	init := append(as, filepath.Join(filepath.Dir(found[0]), "initdb"), "-D", dir+"/d", "-U", user, "-A", "trust", "--no-sync")
	if out, err := exec.Command(init[0], init[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v %s", err, out)
	}
	args := append([]string{"--stop-signal", "INT", "--ready", "notify", "--ready", "output:ready to accept connections", "--ready", "unix:" + dir + "/.s.PGSQL.5432", "--"}, as...)
	h, rec := b.up(t, append(args, found[0], "-D", dir+"/d", "-k", dir, "-c", "listen_addresses=")...)
	dial(t, "unix", dir+"/.s.PGSQL.5432")
	if v := rec.Readiness; v.Ignored != (handles.Ignored{}) {
		t.Errorf("%+v", v)
	}
	b.want(0, "cancel", h)
	if rec := b.show(h); len(rec.Cleanup.Survivors) > 0 {
		t.Errorf("%+v", rec.Cleanup)
	}
}

func TestServiceXvfb(t *testing.T) {
	b := newBench(t)
	xvfb := needTool(t, "Xvfb")
	h, rec := b.up(t, "--ready", "fd:7", "--", xvfb, "-displayfd", "7", "-screen", "0", "64x64x8", "-nolisten", "tcp")
	display := rec.Readiness.Conditions[0].Text
	if display == "" || strings.Trim(display, "0123456789") != "" {
		t.Fatalf("display %q", display)
	}
	dial(t, "unix", "@/tmp/.X11-unix/X"+display)
	b.want(0, "cancel", h)
}

// s6's own server tells by its notification descriptor.
func TestServiceS6(t *testing.T) {
	b := newBench(t)
	s6, sock := needTool(t, "s6-ipcserver"), filepath.Join(t.TempDir(), "s")
	h, _ := b.up(t, "--ready", "fd:5", "--", "sh", "-c", fmt.Sprintf("exec %s -1 %s cat >&5", s6, sock))
	dial(t, "unix", sock)
	b.want(0, "cancel", h)
}
