package ready

import (
	"path/filepath"
	"reflect"
	"testing"
)

// FuzzCondition: what people write behind --ready is refused, or means the same
// when it is read again; paths are whole.
func FuzzCondition(f *testing.F) {
	for _, s := range []string{
		"output:up", "notify", "notify:x", "fd:3", "fd:-1", "fd:99999999999999999999", "tcp::80", "tcp:[::1]:0", "tcp:host:65536", "unix:s", "unix:" + string(make([]byte, 300)),
		"http:localhost:80/x=204", "http://h/=2xx", "https://h", "file:", "file:../x", "exec:true", "later:x", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := Parse(s, "/dir")
		if err != nil {
			return
		}
		again, err := Parse(c.Text, "/dir")
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%q: %+v, again %+v, %v", s, c, again, err)
		}
		if (c.Kind == File || c.Kind == Unix) && c.Path != "" && !filepath.IsAbs(c.Path) && c.Path[0] != '@' {
			t.Errorf("%q: path %q", s, c.Path)
		}
	})
}
