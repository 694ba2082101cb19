package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// chunked runs a query over text that comes in pieces of the given sizes.
func chunked(t testing.TB, q Query, text []byte, sizes []byte) (Found, error) {
	l := &Log{cfg: Config{MaxOutput: -1}.withDefaults(), epoch: time.Now(), rush: make(chan struct{})}
	l.index = &index{}
	for src := range l.streams {
		l.streams[src] = newStream(l, Source(src))
	}
	q.Sources = []Source{Stdout}
	scans, err := l.register(q)
	if err != nil {
		return Found{}, err
	}
	sc := scans[0]
	for i := 0; len(text) > 0 || !sc.ended; i++ {
		n := len(text)
		if len(sizes) > 0 {
			n = min(n, 1+int(sizes[i%len(sizes)]))
		}
		buf := new(buffer)
		seen := copy(buf[:], sc.kept)
		sc.ended = n == 0
		end := sc.text(buf[:], seen, copy(buf[seen:], text[:n]))
		if f := sc.look(buf[:end], seen); f != nil {
			return *f, nil
		}
		sc.pos += int64(n)
		text = text[n:]
	}
	return Found{}, ErrEndedBeforeMatch
}

// stripped is a stripper that takes its time: the text and where each byte was.
func stripped(b []byte) (text []byte, at []int64) {
	var s stripper
	for i, c := range b {
		keep := true
		if s.state == stripText {
			if c == esc {
				s.state, keep = stripEsc, false
			}
		} else {
			keep = s.next(c)
		}
		if keep && c != '\r' {
			text, at = append(text, c), append(at, int64(i))
		}
	}
	return text, at
}

func FuzzStrip(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[1mbold\x1b[0m", "\x1b]0;title\x07x\r\n", "\x1b]8;;u\x1b\\link", "a\x1b(Bb", "\x1b[31\nx", "\x1bP1\x1b[mx", "\xc3\xa9\x1b\xc3\xa9", "\x1b]\x1b\x1b\\t\x18", "\r\r\x1b\r[", "\x1b[12\x18m"} {
		f.Add([]byte(s), []byte{0, 3})
	}
	f.Fuzz(func(t *testing.T, b, sizes []byte) {
		want, _ := stripped(b)
		var v Strip
		var got []byte
		for i, rest := 0, b; len(rest) > 0; i++ {
			n := len(rest)
			if len(sizes) > 0 {
				n = min(n, 1+int(sizes[i%len(sizes)]))
			}
			got = v.Append(got, rest[:n])
			rest = rest[n:]
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%q gives %q, want %q", b, got, want)
		}
		if bytes.ContainsAny(got, "\r") {
			t.Fatalf("a carriage return is left in %q", got)
		}
	})
}

func TestStrip(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[1;32mok\x1b[0m\r\n":           "ok\n",
		"\x1b]0;title\x07text":              "text",
		"\x1b]8;;http://x\x1b\\link":        "link",
		"\x1b(Bx\x1b7y\x1b=z":               "xyz",
		"\x1bPq#0;2;0\x1b\\after":           "after",
		"\x1b]never ended\nnext line":       "\nnext line",
		"\x1b[31\u00e9":                     "\u00e9",
		"10%\r20%\r":                        "10%20%",
		"\x1b]0;cut by\x1b[1mbold":          "bold",
		"caf\u00e9 \u2500 \x1b[?25l\u20ac!": "caf\u00e9 \u2500 \u20ac!",
	} {
		var v Strip
		if got := string(v.Append(nil, []byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

var patterns = []string{
	"a", "ab", "aab", "abcabc", "b+c", "a.c", "^a", "c$", "^ab$", `\bab\b`, `a\B`, "(a|ab)(c|bcd)", "a*b", "a{2,3}b", "[^a]b", "(?i)AB",
	"é", "a.é", "[à-ü]+", "x*", "a|", `\n`, `a\nb`, `\Aab`, `ab\z`, "(?s)a.b", "(?-m)^ab$", "a.*b.*c", "[ab]{5}c", "ba+?", `\x{20ac}`,
}

func FuzzMatch(f *testing.F) {
	for i := range patterns {
		f.Add(uint8(i), []byte("xxaabcabc\nab\r\n\x1b[1ma\x1b[0mb \u20ac\u00e9 aab\n"), []byte{0, 1, 5})
	}
	f.Fuzz(func(t *testing.T, which uint8, raw, sizes []byte) {
		pattern := patterns[int(which)%len(patterns)]
		text, at := stripped(raw)
		re := regexp.MustCompile("(?m)" + pattern)
		for _, q := range []Query{{Pattern: pattern}, {Pattern: pattern, Regex: true}} {
			var want []int
			if q.Regex {
				want = re.FindIndex(text)
			} else if i := bytes.Index(text, []byte(pattern)); i >= 0 {
				want = []int{i, i + len(pattern)}
			}
			got, err := chunked(t, q, raw, sizes)
			if (err == nil) != (want != nil) {
				t.Fatalf("%+v in %q by %v: %v, %v, want %v", q, text, sizes, got, err, want)
			}
			if err != nil {
				continue
			}
			if whole := len(sizes) == 0; whole || !q.Regex {
				checkFound(t, q, got, text, at, want)
			}
			checkText(t, re, q, got, raw)
		}
	})
}

// checkFound compares a match with the one in the whole text.
func checkFound(t *testing.T, q Query, got Found, text []byte, at []int64, want []int) {
	t.Helper()
	if got.Text != string(text[want[0]:want[1]]) {
		t.Fatalf("%+v in %q: text %q, want %q", q, text, got.Text, text[want[0]:want[1]])
	}
	if want[0] < want[1] && (got.From != at[want[0]] || got.To != at[want[1]-1]+1) {
		t.Fatalf("%+v in %q: %d to %d, want %d to %d", q, text, got.From, got.To, at[want[0]], at[want[1]-1]+1)
	}
}

// checkText checks that a match is where it is said to be, and is one.
func checkText(t *testing.T, re *regexp.Regexp, q Query, got Found, raw []byte) {
	t.Helper()
	if got.Text == "" {
		return
	}
	if text, _ := stripped(raw[got.From:got.To]); string(text) != got.Text {
		t.Fatalf("%+v: raw %q is not %q", q, raw[got.From:got.To], got.Text)
	}
	before, _ := stripped(raw[:got.From])
	if q.Regex && !strings.ContainsAny(re.String(), `$^\`) {
		full := regexp.MustCompile("(?m)^(?:" + re.String() + ")$(?-m:$)")
		if !full.MatchString(got.Text) && !strings.Contains(re.String(), "$") {
			t.Fatalf("%+v behind %q: %q is no match", q, before, got.Text)
		}
	}
}

func FuzzIndex(f *testing.F) {
	r := Record{Source: Stderr, Off: 5, Len: 7, Mono: 9, Wall: time.Unix(1, 2)}
	f.Add(append([]byte(indexMagic), r.append(r.append(nil))...))
	f.Add([]byte(indexMagic + "torn"))
	for _, bad := range []Record{{Len: -1}, {}, {Off: -5, Len: 9}, {Off: 1<<63 - 1, Len: 9}} {
		f.Add(append([]byte(indexMagic), bad.append(nil)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		recs, whole := parseIndex(b)
		again := []byte(indexMagic)
		for _, r := range recs {
			if r.Len <= 0 || r.Off < 0 || r.End() < r.Off {
				t.Fatalf("bad record %+v", r)
			}
			again = r.append(again)
		}
		if whole && len(again) != len(b) {
			t.Fatalf("%d bytes are whole but hold %d", len(b), len(again))
		}
		if back, ok := parseIndex(again); !ok || len(back) != len(recs) {
			t.Fatalf("%d records come back as %d", len(recs), len(back))
		}
	})
}

func FuzzHeadTail(f *testing.F) {
	f.Add([]byte("caf\u00e9 \u20ac \U0001f600 plain"), uint8(7))
	f.Add([]byte("\xe2\x82"), uint8(1))
	f.Add([]byte("\x80\xff\xe2 binary"), uint8(4))
	dir := f.TempDir()
	n := 0
	f.Fuzz(func(t *testing.T, b []byte, max uint8) {
		n++
		l, err := Open(Config{Dir: filepath.Join(dir, fmt.Sprint(n))})
		if err != nil {
			t.Fatal(err)
		}
		l.Feed(Stdout).Write(b)
		l.Close()
		checkViews(t, l, b, int64(max))
	})
}

func TestNewlineIsNotNeededAndAnchorsWait(t *testing.T) {
	for _, c := range []struct {
		pattern, first, second, want string
	}{
		{"login: ", "login: ", "", "login: "},
		{"^ready$", "ready", "ing\nready\n", "ready"},
		{`port \d+`, "port 80", "80\n", "port 80"},
		{`\bup\b`, "up", "date up!", "up"},
		{"a.*z", "a..", "..z..", "a....z.."},
	} {
		l, err := Open(Config{})
		if err != nil {
			t.Fatal(err)
		}
		w := l.Feed(Stdout)
		w.Write([]byte(c.first))
		got := make(chan Found)
		go func() {
			f, _ := l.Match(t.Context(), Query{Pattern: c.pattern, Regex: true})
			got <- f
		}()
		if c.second == "" || c.pattern == `port \d+` {
			if f := <-got; f.Text != c.want {
				t.Errorf("%s: %+v", c.pattern, f)
			}
			l.Close()
			continue
		}
		for seen := false; !seen; { // the first part was looked at
			s := l.Stream(Stdout)
			s.mu.Lock()
			for sc := range s.scans {
				seen = sc.pos == int64(len(c.first))
			}
			s.mu.Unlock()
		}
		w.Write([]byte(c.second))
		f := <-got
		if !strings.HasPrefix(c.want, f.Text) || f.From != int64(strings.Index(c.first+c.second, f.Text)) && c.pattern != "^ready$" && c.pattern != `\bup\b` {
			t.Errorf("%s: %+v", c.pattern, f)
		}
		if c.pattern == "^ready$" && f.From != 9 || c.pattern == `\bup\b` && f.From != 7 {
			t.Errorf("%s: %+v", c.pattern, f)
		}
		l.Close()
	}
}

func TestS2_10_MatchEndOrTimeout(t *testing.T) {
	l, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Feed(Stderr).Write([]byte("on stderr"))
	if f, err := l.Match(t.Context(), Query{Pattern: "stderr"}); err != nil || f != (Found{Stderr, 3, 9, "stderr"}) {
		t.Errorf("matched: %+v, %v", f, err)
	}
	why := errors.New("timed out")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, why)
	defer cancel()
	if _, err := l.Match(ctx, Query{Pattern: "never"}); !errors.Is(err, why) {
		t.Errorf("timed out: %v", err)
	}
	l.settle()
	if _, err := l.Match(t.Context(), Query{Pattern: "never"}); !errors.Is(err, ErrEndedBeforeMatch) {
		t.Errorf("ended: %v", err)
	}
	if f, err := l.Match(t.Context(), Query{Pattern: "on"}); err != nil || f.From != 0 {
		t.Errorf("match and end both true: %+v, %v", f, err)
	}
	for _, q := range []Query{{}, {Pattern: "(", Regex: true}, {Pattern: "x", Sources: []Source{1, 1}}, {Pattern: strings.Repeat("x", MatchSpan+1)}} {
		if _, err := l.Match(t.Context(), q); err == nil || errors.Is(err, ErrEndedBeforeMatch) {
			t.Errorf("query %.40v: %v", q, err)
		}
	}
}
