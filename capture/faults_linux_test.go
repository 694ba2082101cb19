package capture

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestA15_LastLineWithoutNewline(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	cmd := child("copy")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin(t, l, cmd)
	fmt.Fprint(in, "line1\nlast-no-newline")
	f, err := l.Match(t.Context(), Query{Pattern: "last-no-newline"})
	if want := (Found{Stdout, 6, 21, "last-no-newline"}); err != nil || f != want {
		t.Errorf("match %v, %v, want %v", f, err, want)
	}
	in.Close()
	cmd.Wait()
	if !drain(l) {
		t.Error("not complete")
	}
	if b, _ := contents(t, l.Stream(Stdout)); string(b) != "line1\nlast-no-newline" {
		t.Errorf("stdout %q", b)
	}
}

func TestA16_LastLineIsThereAfterDrain(t *testing.T) {
	guard(t)
	for i := range 100 {
		l := open(t, Config{})
		cmd := begin(t, l, child("echo", "1\n", "2\n"))
		cmd.Wait()
		if !drain(l) {
			t.Error("not complete")
		}
		if b, err := os.ReadFile(l.Path(Stdout)); string(b) != "1\n2\n" {
			t.Fatalf("run %d: %q, %v", i, b, err)
		}
		l.Close()
	}
}

func TestG13_NothingLostBetweenExitAndDrain(t *testing.T) {
	guard(t)
	want := seqText(1000)
	for i := range 50 {
		l := open(t, Config{})
		cmd := begin(t, l, child("err", string(want), "boom\n", "7"))
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 7 || !drain(l) {
			t.Errorf("code %d", code)
		}
		out, _ := contents(t, l.Stream(Stdout))
		errs, _ := contents(t, l.Stream(Stderr))
		if !bytes.Equal(out, want) || string(errs) != "boom\n" {
			t.Fatalf("run %d: %d bytes and %q", i, len(out), errs)
		}
		l.Close()
	}
}

// A stopped pump has to take what is in the pipe even when nobody gave it time.
func TestG13_StopTakesWhatIsInThePipe(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	w := pipe(t, l, Stdout)
	want := bytes.Repeat([]byte("x"), 60000)
	w.Write(want)
	if l.Drain(t.Context(), 0, 0) {
		t.Error("complete although the pipe is held open")
	}
	if b, _ := contents(t, l.Stream(Stdout)); !bytes.Equal(b, want) {
		t.Errorf("%d bytes, want %d", len(b), len(want))
	}
}

func TestA17_EndlessLine(t *testing.T) {
	guard(t)
	n := 400_000_000
	if testing.Short() || raceEnabled {
		n = 40_000_000
	}
	for name, q := range map[string]Query{
		"literal":    {Pattern: "done"},
		"expression": {Pattern: `d[aeiou]ne$`, Regex: true},
		"greedy":     {Pattern: `x.*\ndo+ne`, Regex: true},
		"raw":        {Pattern: "\ndone\n", Raw: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := rss()
			l := open(t, Config{})
			cmd := begin(t, l, child("fill", "x", fmt.Sprint(n), "\ndone\n"))
			f, err := l.Match(t.Context(), q)
			if err != nil || f.To < int64(n) {
				t.Errorf("match at %d to %d, %v", f.From, f.To, err)
			}
			if len(f.Text) > MatchSpan+scanChunk {
				t.Errorf("text of %d bytes", len(f.Text))
			}
			cmd.Wait()
			if !drain(l) || l.Stream(Stdout).Extent().Total != int64(n)+6 {
				t.Errorf("extent %v", l.Stream(Stdout).Extent())
			}
			if grown := rss() - before; grown > 64<<20 && !raceEnabled {
				t.Errorf("resident size grew by %d MiB", grown>>20)
			}
		})
	}
}

func TestA18_BytesAsTheyAre(t *testing.T) {
	guard(t)
	want := make([]byte, 100_000)
	rand.Read(want)
	copy(want[50_000:], "\x00\r\r\n\xff\xfe")
	l := open(t, Config{})
	cmd := child("copy")
	cmd.Stdin = bytes.NewReader(want)
	run(t, l, cmd)
	got, err := os.ReadFile(l.Path(Stdout))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("spool differs: %d bytes, %v", len(got), err)
	}
	v, err := l.HeadTail(Stdout, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	j, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var back View
	if err := json.Unmarshal(j, &back); err != nil || back.Encoding != "base64" || back.Text != "" {
		t.Errorf("view %s %q, %v", back.Encoding, back.Text, err)
	}
	if b, err := base64.StdEncoding.DecodeString(back.Base64); err != nil || !bytes.Equal(b, want) {
		t.Errorf("view holds %d bytes, %v", len(b), err)
	}
}

func TestA23_EndBeforeMatch(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	cmd := begin(t, l, child("echo", "booting\n"))
	_, err := l.Match(t.Context(), Query{Pattern: "listening on"})
	if !errors.Is(err, ErrEndedBeforeMatch) {
		t.Errorf("match: %v", err)
	}
	cmd.Wait()
	drain(l)
	if f, err := l.Match(t.Context(), Query{Pattern: "boot"}); err != nil || f.From != 0 {
		t.Errorf("match after the end: %v, %v", f, err)
	}
	if _, err = l.Match(t.Context(), Query{Pattern: "boot", From: map[Source]int64{Stdout: 1}}); !errors.Is(err, ErrEndedBeforeMatch) {
		t.Errorf("match from 1: %v", err)
	}
}

func TestG4_QuietHolder(t *testing.T) { holder(t, "quiet") }
func TestG5_NoisyHolder(t *testing.T) { holder(t, "noisy") }

// holder runs a command that leaves a process with the pipe open behind.
func holder(t *testing.T, mode string) {
	guard(t)
	l := open(t, Config{})
	var pid bytes.Buffer
	cmd := child("hold", "done\n", mode)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stderr = w
	begin(t, l, cmd)
	w.Close()
	cmd.Wait()
	pid.ReadFrom(r)
	defer func() { syscall.Kill(atoi(strings.TrimSpace(pid.String())), syscall.SIGKILL) }()
	begin := time.Now()
	if l.Drain(t.Context(), 50*time.Millisecond, 300*time.Millisecond) {
		t.Error("complete, with a process that holds the pipe")
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("drain took %v", took)
	}
	s := l.Stream(Stdout)
	if b, _ := contents(t, s); !bytes.Contains(b, []byte("done\n")) {
		t.Errorf("stdout %q", b)
	}
	if !s.Ended() {
		t.Error("the stream goes on")
	}
}

func TestG12_CutsAreStated(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	run(t, l, child("seq", "200000"))
	want := seqText(200_000)
	v, err := l.HeadTail(Stdout, 1000)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(len(want))
	if v.From != 0 || v.To != total || v.Total != total || v.Omitted != total-1000 {
		t.Errorf("view from %d to %d of %d, omitted %d", v.From, v.To, v.Total, v.Omitted)
	}
	marker := fmt.Sprintf("[… %d bytes omitted …]\n", total-1000)
	head, tail, found := strings.Cut(v.Text, marker)
	if !found || !strings.HasPrefix(string(want), strings.TrimSuffix(head, "\n")) || !strings.HasSuffix(string(want), tail) || len(tail) != 500 {
		t.Errorf("text %q", v.Text)
	}
	var all []byte
	for off := int64(0); ; {
		p, err := l.Range(Stdout, off, 100_000)
		if err != nil {
			t.Fatal(err)
		}
		if p.To == off {
			break
		}
		all, off = append(all, p.Text...), p.To
	}
	if !bytes.Equal(all, want) {
		t.Errorf("pages give %d bytes, want %d", len(all), len(want))
	}
}

func TestG15_MatchBeforeTheWait(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	w := pipe(t, l, Stdout)
	w.WriteString("listening\n")
	await(t, l.Stream(Stdout), 10)
	if f, err := l.Match(t.Context(), Query{Pattern: "listening"}); err != nil || f.From != 0 {
		t.Errorf("%v, %v", f, err)
	}
}

func TestG16_RuneInTwoWrites(t *testing.T) {
	guard(t)
	l := open(t, Config{})
	s := l.Stream(Stdout)
	w := pipe(t, l, Stdout)
	w.WriteString("a\xe2\x82")
	await(t, s, 3)
	for name, get := range map[string]func() (View, error){
		"range": func() (View, error) { return l.Range(Stdout, 0, 100) },
		"head":  func() (View, error) { return l.HeadTail(Stdout, 100) },
		"tail":  func() (View, error) { return l.Tail(Stdout, 100) },
	} {
		if v, err := get(); err != nil || v.Text != "a" || v.To != 1 || v.Omitted != 0 {
			t.Errorf("%s of half a rune: %+v, %v", name, v, err)
		}
	}
	w.WriteString("\xac\n")
	w.Close()
	drain(l)
	if b, _ := os.ReadFile(s.spool.path); string(b) != "a\u20ac\n" {
		t.Errorf("spool %q", b)
	}
	if v, err := l.Range(Stdout, 1, 100); err != nil || v.Text != "\u20ac\n" {
		t.Errorf("next page: %+v, %v", v, err)
	}
}

func TestG17_ProgressBars(t *testing.T) {
	var raw []byte
	for i := 1; i <= 1000; i++ {
		raw = fmt.Appendf(raw, "\rprogress %d/1000", i)
	}
	raw = append(raw, "\nplain\r\nlast\r"...)
	for _, size := range []int{1, 7, 100, len(raw)} {
		var v Lines
		var got []byte
		for b := raw; len(b) > 0; {
			n := min(size, len(b))
			got = v.Append(got, b[:n])
			b = b[n:]
		}
		got = v.Flush(got)
		if want := "progress 1000/1000\nplain\nlast"; string(got) != want || v.Collapsed != 999 {
			t.Errorf("in pieces of %d: %q, %d collapsed, want %q, 999", size, got, v.Collapsed, want)
		}
	}
}
