package main

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// batch is what continue prints.
func (b *bench) batch(args ...string) (w wire.Batch) {
	b.t.Helper()
	if out := b.want(0, append([]string{"continue", "-S", "s"}, args...)...); json.Unmarshal([]byte(out), &w) != nil {
		b.t.Fatalf("continue: %s", out)
	}
	return w
}

// S2-01, S1-04, S1-35, G20: start, go on, get each result once, by one route.
func TestS2_01_ResultsOnce(t *testing.T) {
	b := newBench(t)
	one, two := b.start("-S", "s", "--", "sh", "-c", "echo hi"), b.start("-S", "s", "--", "false")
	b.want(0, "idle", "-S", "s", "--wait")
	if out := b.want(0, "pending", "-S", "s"); out != "2" {
		t.Errorf("pending: %s", out)
	}
	w := b.batch()
	if w.Count != 2 || w.Completions[0].HandleID != handles.ID(min(one, two)) || w.Completions[1].HandleID != handles.ID(max(one, two)) {
		t.Errorf("continue: %+v", w)
	}
	if w := b.batch(); w.Event != wire.NothingKey || w.Count != 0 {
		t.Errorf("again: %+v", w)
	}
	if out := b.want(0, "deliveries", "-S", "s", "--json"); !strings.Contains(out, one) || !strings.Contains(out, w.Batch) {
		t.Errorf("deliveries: %s", out)
	}
	b.want(0, "idle", "-S", "s", "--expect", one+","+two)
	for range 3 { // wait takes it
		b.want(1, "wait", b.start("-S", "s", "--", "false"))
	}
	if w := b.batch(); w.Count != 0 {
		t.Errorf("after wait: %+v", w)
	}
	if r := b.run("start", "-S", "s", "--background-after", "20s", "--", "sh", "-c", "exit 4"); r.code != 4 {
		t.Errorf("in front: exit %d, %s", r.code, r.err)
	}
	if w := b.batch(); w.Count != 0 {
		t.Errorf("after a start that ended in front: %+v", w)
	}
}

// before gets nothing away from the next one, and several at once share.
func TestS1_35_ReadersOfTheInbox(t *testing.T) {
	b := newBench(t)
	h := b.start("-S", "s", "--", "true")
	b.want(0, "idle", "-S", "s", "--wait")
	cmd := b.command("continue", "-S", "s")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd.Stdout = full
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitProcsup {
		t.Errorf("to a full disk: %v", err)
	}
	if w := b.batch(); w.Count != 1 || string(w.Completions[0].HandleID) != h || !w.Redelivered {
		t.Errorf("the next one: %+v", w)
	}
	var want, got []string
	for range 6 {
		want = append(want, b.start("-S", "s", "--", "true"))
	}
	b.want(0, "idle", "-S", "s", "--wait")
	var all sync.WaitGroup
	outs := make([]string, 3)
	for i := range outs {
		all.Go(func() { outs[i] = b.run("continue", "-S", "s").out })
	}
	all.Wait()
	for _, out := range outs {
		var w wire.Batch
		if err := json.Unmarshal([]byte(out), &w); err != nil {
			t.Fatal(err, out)
		}
		for _, c := range w.Completions {
			got = append(got, string(c.HandleID))
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// anything is taken.
func TestS1_36_ContinueCarriesNothing(t *testing.T) {
	b := newBench(t)
	b.start("-S", "s", "--", "true")
	b.want(0, "idle", "-S", "s", "--wait")
	for _, args := range [][]string{{"--input", "x"}, {"some text"}, {"--", "cat"}, {"--exec", ""}, {"--exec", "cat", "text"}} {
		r := b.run(append([]string{"continue", "-S", "s"}, args...)...)
		if r.code != exitUsage || r.out != "" || !strings.Contains(r.err, "config_error") {
			t.Errorf("continue %q: exit %d, %s%s", args, r.code, r.out, r.err)
		}
	}
	b.want(exitUsage, "continue", "-S", "s", "--deadline", "1s")
	if w := b.batch(); w.Count != 1 || w.Redelivered {
		t.Errorf("the inbox is not untouched: %+v", w)
	}
}

// it is pending again.
func TestS1_37_ContinueExec(t *testing.T) {
	b := newBench(t)
	b.start("-S", "s", "--", "true")
	b.start("-S", "s", "--", "true")
	b.want(0, "idle", "-S", "s", "--wait")
	pending := func(want string) {
		t.Helper()
		if out := b.want(0, "pending", "-S", "s"); out != want {
			t.Errorf("pending %s, want %s", out, want)
		}
	}
	if r := b.run("continue", "-S", "s", "--exec", "cat >/dev/null; exit 3"); r.code != 3 {
		t.Errorf("exit %d, %s", r.code, r.err)
	}
	pending("2")
	b.want(exitDeadline, "continue", "-S", "s", "--exec", "exec sleep 100", "--deadline", "100ms")
	pending("2")
	b.want(0, "scope", "open", "g", "-S", "s")
	b.want(0, "scope", "cancel", "g", "-S", "s")
	b.want(exitRefused, "continue", "-S", "s", "--exec", "cat", "--scope", "g")
	pending("2")
	out := b.want(0, "continue", "-S", "s", "--max-items", "1", "--exec", `cat; echo $PROCSUP_SESSION`)
	line, session, _ := strings.Cut(out, "\n")
	var w wire.Batch
	if err := json.Unmarshal([]byte(line), &w); err != nil || w.Count != 1 || !w.Completions[0].Redelivered || session != "s" {
		t.Errorf("%s: %v", out, err)
	}
	pending("1")
	b.want(0, "continue", "-S", "s", "--exec", "exit 0") // stdin is not read
	pending("0")
	if w := b.batch("--exec", "echo ran"); w.Event != wire.NothingKey {
		t.Errorf("nothing there: %+v", w)
	}
}

// S1-39, S1-41: idle says what runs and what is missing, and by its exit code.
func TestS1_39_Idle(t *testing.T) {
	b := newBench(t)
	h := b.start("-S", "s", "--stdin", "pipe", "--", "cat")
	b.want(exitTimedOut, "idle", "-S", "s")
	b.want(exitTimedOut, "idle", "-S", "s", "--wait", "--timeout", "50ms")
	b.want(0, "send", h, "--close")
	b.want(0, "idle", "-S", "s", "--wait")
	var i wire.Idle
	r := b.run("idle", "-S", "s", "--json", "--wait", "--expect", h)
	if json.Unmarshal([]byte(r.out), &i) != nil || r.code != exitRefused || !i.Idle || !slices.Equal(i.Missing, []handles.ID{handles.ID(h)}) {
		t.Errorf("exit %d, %s", r.code, r.out)
	}
	if !strings.Contains(r.err, h) {
		t.Errorf("it is not named: %s", r.err)
	}
	b.batch()
	b.want(0, "idle", "-S", "s", "--wait", "--expect", h)
}

// error, announces it, and ends after closed.
func TestS1_30_NotifyEndsWithTheSession(t *testing.T) {
	b := newBench(t)
	b.want(0, "session", "open", "s")
	cmd := b.command("notify", "-S", "s")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	until := func(kind string) (n wire.Notice) {
		t.Helper()
		for lines.Scan() {
			if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
			if n.Kind == kind {
				return n
			}
			n = wire.Notice{}
		}
		t.Fatalf("no %s", kind)
		return n
	}
	until(wire.NoticeSubscribed)
	b.want(exitNotFound, "start", "-S", "s", "--", "/no/such")
	if n := until(wire.NoticeFinished); n.Status != handles.Failed || !strings.Contains(n.Error, "/no/such") {
		t.Errorf("%+v", n)
	}
	if n := until(wire.NoticeReady); n.Count != 1 {
		t.Errorf("%+v", n)
	}
	b.start("-S", "s", "--notify-match", "up", "--", "echo", "it is up")
	if n := until(wire.NoticeMatched); n.Pattern != "up" || n.From != 6 {
		t.Errorf("%+v", n)
	}
	b.want(0, "session", "close", "s")
	until(wire.NoticeClosed)
	if lines.Scan() {
		t.Errorf("after closed: %s", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("notify: %v", err)
	}
}
