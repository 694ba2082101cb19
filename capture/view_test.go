package capture

import (
	"bytes"
	"encoding/base64"
	"testing"
	"unicode/utf8"
)

// checkViews checks all views of an ended stdout that holds b.
func checkViews(t *testing.T, l *Log, b []byte, max int64) {
	t.Helper()
	for name, get := range map[string]func() (View, error){
		"head and tail": func() (View, error) { return l.HeadTail(Stdout, max) },
		"tail":          func() (View, error) { return l.Tail(Stdout, max) },
		"page":          func() (View, error) { return l.Range(Stdout, 0, max) },
	} {
		v, err := get()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if v.Total != int64(len(b)) || v.From < 0 || v.From > v.To || v.To > v.Total {
			t.Fatalf("%s: from %d to %d of %d, want %d", name, v.From, v.To, v.Total, len(b))
		}
		if kept := v.To - v.From - v.Omitted; kept > max || kept < min(max, int64(len(b)))-4*3 {
			t.Fatalf("%s of %d: %d bytes, want %d", name, len(b), kept, max)
		}
		if got, want := bytesOf(t, v), pick(b, v); !bytes.Equal(got, want) {
			t.Fatalf("%s of %q: %q, want %q (%+v)", name, b, got, want, v)
		}
		if utf8.Valid(b) && v.Encoding != "utf-8" && !(name == "page" && max < utf8.UTFMax) {
			t.Fatalf("%s of text %q is %s: %+v", name, b, v.Encoding, v)
		}
	}
}

// pick returns what the view says is in it.
func pick(b []byte, v View) []byte {
	var out []byte
	off := v.From
	for _, g := range v.Gaps {
		out, off = append(out, b[off:g.From]...), g.To
	}
	return append(out, b[off:v.To]...)
}

// bytesOf returns what is in the view, without its markers.
func bytesOf(t *testing.T, v View) []byte {
	if v.Encoding == "base64" {
		b, err := base64.StdEncoding.DecodeString(v.Base64)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	out := []byte(v.Text)
	off := v.From
	i := int64(0)
	for _, g := range v.Gaps { // a marker is where the gap is
		i += g.From - off
		end := bytes.Index(out[i:], []byte("omitted …]\n"))
		if end < 0 {
			t.Fatalf("no marker in %q", v.Text)
		}
		out = append(out[:i:i], out[i+int64(end)+int64(len("omitted …]\n")):]...)
		off = g.To
	}
	return out
}
