package mcp

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestRedis: what an agent does with a server, with a real one: start, wait for
// the ready line, talk to it, cancel, see that nothing is left.
func TestRedis(t *testing.T) {
	for _, tool := range []string{"redis-server", "redis-cli"} {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("PROCSUP_NO_SKIP") == "" {
			t.Skip(err)
		}
	}
	r := newRig(t)
	a := r.connect(nil)
	dir := t.TempDir()
	sock := dir + "/redis"
	start := args{
		"argv": []string{"redis-server", "--port", "0", "--unixsocket", sock, "--dir", dir, "--save", ""},
		"name": "redis", "background_after_s": 0,
	}
	v, res := must[handleView](a, "run_command", start)
	if !v.Running {
		t.Fatalf("%s", text(res))
	}
	a.told("redis", "ready to accept connections")
	say := func(line string) string {
		t.Helper()
		v, res := must[handleView](a, "run_command", args{"command": fmt.Sprintf("redis-cli -s %s %s", sock, line)})
		if res.IsError {
			t.Fatalf("%s: %s", line, text(res))
		}
		return strings.TrimSpace(v.Stdout.Text)
	}
	if got := say("set lifeboat '24 places'"); got != "OK" {
		t.Errorf("set: %q", got)
	}
	if got := say("get lifeboat"); got != "24 places" {
		t.Errorf("get: %q", got)
	}
	if why := a.refused("run_command", start); !strings.Contains(why, "redis") {
		t.Errorf("the name is taken: %s", why)
	}
	end, res := must[handleView](a, "cancel", args{"handle": "redis"})
	if end.Status != "killed" || end.Cause != "cancelled" || len(end.Left) > 0 || res.IsError || !strings.Contains(text(res), "User requested shutdown") {
		t.Errorf("%+v\n%s", end, text(res))
	}
	r.ended(v.Handle)
	if _, err := os.Stat(sock); !os.IsNotExist(err) {
		t.Errorf("its socket is still there: %v", err)
	}
	if v, res := must[handleView](a, "run_command", args{"command": "redis-cli -s " + sock + " ping"}); !res.IsError {
		t.Errorf("it answers: %+v", v)
	}
}
