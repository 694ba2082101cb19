package supervisor

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// FuzzStart: a start from outside is refused as invalid, or can be kept in the
// journal and taken up again as the same.
func FuzzStart(f *testing.F) {
	for _, s := range []string{
		`{"command":["x"],"env":["A=b"]}`, `{"command":[""],"env":["=b"]}`, `{"command":["a\u0000"]}`, `{"command":["x"],"session":"a//","name":"hto-1"}`,
		`{"command":["x"],"grace_ms":-1}`, `{"command":["x"],"umask":512,"events":65537}`, `{"command":["x"],"stdin":"rel","tag":"test","lease":"awaited"}`,
		`{"command":["x"],"session":"/","stop_signal":"sigkill","leftover":"wait","containment":"tree","notify_match":[""]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var req wire.Start
		if json.Unmarshal(b, &req) != nil {
			return
		}
		spec, err := check(req)
		if err != nil {
			if !errors.Is(err, handles.ErrInvalid) {
				t.Errorf("%s: %v", b, err)
			}
			return
		}
		if !goodName.MatchString(spec.Session) || spec.Name != "" && !goodName.MatchString(spec.Name) || strings.HasPrefix(spec.Name, handles.CommandPrefix) {
			t.Errorf("session %q, name %q", spec.Session, spec.Name)
		}
		if again, err := check(spec); err != nil || fingerprint(again) != fingerprint(spec) {
			t.Errorf("%s: checked again: %+v, %v", b, again, err)
		}
		if kept := startOf(journal.Run{Spec: specJSON(spec)}); !spec.NoStoreEnv && fingerprint(kept) != fingerprint(spec) {
			t.Errorf("%s is kept as %+v", b, kept)
		}
		if l := ladder(spec); l.Signal <= 0 {
			t.Errorf("%s: stopped by signal %d", b, l.Signal)
		}
	})
}
