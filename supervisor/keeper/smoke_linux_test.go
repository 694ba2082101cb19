package keeper

import "testing"

func chaosRole([]string) int { return 0 }
func oldRole([]string) int   { return 0 }

func TestSmoke(t *testing.T) {
	r := newRig(t, rigConfig{})
	h := r.connected()
	t.Logf("%+v", h)
	r.do("ready")
	r.do("register a 2")
	gate, open := gate(t)
	s := r.do("spawn a echo hello; read x <%s; exit 3", gate)
	r.do("spawned a")
	h = r.kill()
	t.Logf("%+v", h)
	if got := h.run(t, "a"); got.PID != s.PID || got.Pipes != 2 {
		t.Fatal(got)
	}
	open()
	t.Logf("%+v", r.next("exit").Exit)
	t.Log(r.do("read a 0").Text)
	h = r.kill()
	t.Logf("%+v", h.Runs[0].Exit)
	r.do("settled a")
	h = r.kill()
	t.Logf("%+v", h)
}
