package client

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"procsup/supervisor/wire"
)

// FuzzStreamLine: lines of a stream are values as they were written, in their
// order, and reading them ends.
func FuzzStreamLine(f *testing.F) {
	f.Add([]byte("{\"seq\":1}\n{\"seq\":2}\n"))
	f.Add([]byte("event: x\nid: 7\ndata: {\"kind\":\"closed\"}\n\n: comment\ndata:{}\r\n"))
	f.Add([]byte("data: data: {}\n{\n}\n{\"started\":null"))
	f.Add([]byte(strings.Repeat("x", 70000) + "\n{}\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		rest := in
		for {
			line, err := streamLine(r)
			if err != nil {
				return
			}
			at := bytes.Index(rest, line)
			if at < 0 || line[0] != '{' || bytes.IndexByte(line, '\n') >= 0 {
				t.Fatalf("%q is no line of %q", line, rest)
			}
			rest = rest[at+len(line):]
			_, _ = kindOf(line)
			_ = decodeLine(line, &wire.Notice{})
			_ = decodeLine(line, &wire.RunLine{})
		}
	})
}
