package platform

import "testing"

func TestOutside(t *testing.T) {
	for name, tt := range map[string]struct{ self, want string }{
		"plain":         {"/m/user.slice/s.scope", "/m/user.slice/s.scope"},
		"root":          {"/m", "/m"},
		"in a run":      {"/m/user.slice/procsup-a1", "/m/user.slice"},
		"nested runs":   {"/m/a/procsup-a1/procsup-b2/x", "/m/a"},
		"below root":    {"/m/procsup-a1", "/m"},
		"our own unit":  {"/m/procsup-daemon.service", "/m/procsup-daemon.service"},
		"run in a unit": {"/m/procsup-daemon.service/procsup-1", "/m/procsup-daemon.service"},
	} {
		if got := (CgroupHome{Mount: "/m", Self: tt.self}).Outside(); got != tt.want {
			t.Errorf("%s: outside of %s is %s, want %s", name, tt.self, got, tt.want)
		}
	}
}
