//go:build linux

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
)

// S3-32: the last lines, whichever stream they are in; offsets; both streams in
// the order written.
func TestS3_32_Logs(t *testing.T) {
	b := newBench(t)
	h := b.start("--", "sh", "-c", `for i in 1 2 3; do echo out $i; sleep 0.01; echo err $i >&2; sleep 0.01; done; printf end`)
	b.want(0, "wait", h)
	all := "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\nend"
	for args, want := range map[string]string{
		"":                              all,
		"-f":                            all,
		"--tail 3":                      "out 3\nerr 3\nend",
		"--limit 1":                     "end",
		"--limit 0":                     "",
		"--tail 100":                    all,
		"--tail 2 -f":                   "err 3\nend",
		"--source stderr":               "err 1\nerr 2\nerr 3",
		"--source stderr --tail 1":      "err 3",
		"--source stdout --from 12":     "out 3\nend",
		"--from -3":                     "end",
		"--from-offset 6":               "out 2\nout 3\nend",
		"--source stderr --max-bytes 6": "err\n[… 12 bytes omitted …]\n 3",
	} {
		if got := b.want(0, append([]string{"logs", h}, strings.Fields(args)...)...); got != want {
			t.Errorf("logs %s: got %q, want %q", args, got, want)
		}
	}
	stamped := b.want(0, "logs", h, "--timestamps")
	if ok, _ := regexp.MatchString(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (out|err) \d\n){6}\d{4}-\S+Z end$`, stamped); !ok {
		t.Errorf("timestamps: %q", stamped)
	}
	lines := strings.Split(stamped, "\n")
	first, err1 := time.Parse(time.RFC3339, strings.Fields(lines[0])[0])
	last, err2 := time.Parse(time.RFC3339, strings.Fields(lines[6])[0])
	if err1 != nil || err2 != nil || last.Sub(first) < 30*time.Millisecond || last.Sub(first) > 20*time.Second {
		t.Errorf("from %v to %v: not when it was written", first, last)
	}
	b.want(exitNoHandle, "logs", "nobody")
}

// G16, G17: bytes come as they are; progress bars and escapes can be taken out.
func TestLogsViews(t *testing.T) {
	b := newBench(t)
	h := b.start("--", "printf", `a\000\377\nbar 1\rbar 2\rbar 3\n\033[31mred\033[0m\n`)
	b.want(0, "wait", h)
	for args, want := range map[string]string{
		"":                          "a\x00\xff\nbar 1\rbar 2\rbar 3\n\x1b[31mred\x1b[0m",
		"--view lines":              "a\x00\xff\nbar 3\n\x1b[31mred\x1b[0m",
		"--view lines --strip-ansi": "a\x00\xff\nbar 3\nred",
		"--strip-ansi --tail 1":     "red",
	} {
		if got := b.want(0, append([]string{"logs", h}, strings.Fields(args)...)...); got != want {
			t.Errorf("logs %s: got %q, want %q", args, got, want)
		}
	}
}

// What was not kept is named where it would have been; the rest is exact.
func TestLogsWithAGap(t *testing.T) {
	b := newBench(t)
	h := b.start("--max-output", "2M", "--", "sh", "-c", "head -c 8000000 /dev/zero | tr '\\0' x; echo; echo end")
	b.want(0, "wait", h)
	rec := b.show(h)
	if rec.Output == nil || rec.Output.Stdout == nil || len(rec.Output.Stdout.Omitted) == 0 {
		t.Fatalf("nothing was omitted: %+v", rec.Output)
	}
	var lost int64
	for _, g := range rec.Output.Stdout.Omitted {
		lost += g.To - g.From
	}
	r := b.run("logs", h, "--source", "stdout")
	if int64(len(r.out)) != rec.Output.Stdout.Bytes-lost || !strings.HasSuffix(r.out, "x\nend\n") {
		t.Errorf("%d bytes, want %d of %d", len(r.out), rec.Output.Stdout.Bytes-lost, rec.Output.Stdout.Bytes)
	}
	if n := strings.Count(r.err, "omitted here"); n != len(rec.Output.Stdout.Omitted) {
		t.Errorf("%d gaps are named, want %d: %s", n, len(rec.Output.Stdout.Omitted), r.err)
	}
	if got := b.want(0, "logs", h, "--tail", "1"); got != "end" {
		t.Errorf("the last line is %q", got)
	}
}

func TestLineRing(t *testing.T) {
	for _, c := range []struct {
		max  int
		in   []string
		want string
	}{
		{2, []string{"a\nb\nc\n"}, "b\nc\n"},
		{2, []string{"a\nb", "b\nc"}, "bb\nc"},
		{1, []string{"a\n", "b", "c"}, "bc"},
		{0, []string{"a\n"}, ""},
		{5, []string{"a\n"}, "a\n"},
	} {
		r := &lineRing{max: c.max}
		for _, s := range c.in {
			r.add([]byte(s))
		}
		if got := string(bytes.Join(r.last(), nil)); got != c.want {
			t.Errorf("the last %d of %q: %q, want %q", c.max, c.in, got, c.want)
		}
	}
}

func TestHeadTail(t *testing.T) {
	in := strings.Repeat("0123456789", 30_000)
	for _, step := range []int{1, 7, 1000, len(in)} {
		h := &headTail{head: 4, tail: 3}
		var out []byte
		for i := 0; i < len(in); i += step {
			out = append(out, h.add([]byte(in[i:min(i+step, len(in))]))...)
		}
		if got, want := string(append(out, h.rest()...)), "0123\n[… 299993 bytes omitted …]\n789"; got != want {
			t.Errorf("in steps of %d: %q, want %q", step, got, want)
		}
	}
}

func TestLinesFromEnd(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		off  int
		done bool
	}{
		{"a\nb\nc\n", 1, 4, true}, {"a\nb\nc", 1, 4, true}, {"a\nb\nc\n", 2, 2, true}, {"a\nb\n", 2, 0, false}, {"", 1, 0, false}, {"\n\n", 1, 1, true}, {"abc", 0, 3, true},
	} {
		if off, done := linesFromEnd([]byte(c.in), c.n); off != c.off || done != c.done {
			t.Errorf("%q, %d: %d %v, want %d %v", c.in, c.n, off, done, c.off, c.done)
		}
	}
}

func TestPlain(t *testing.T) {
	if got, want := plain("a\nb\x1b[31mc\u202ed", 0), "a b\ufffd[31mc\ufffdd"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := plain("abcdef", 4); got != "abc…" {
		t.Errorf("cut: %q", got)
	}
}
