package keeper

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"procsup/platform"
)

// Every field that is not zero crosses the wire.
func TestMessageRoundTrip(t *testing.T) {
	exit := &Exit{
		ID: "a", PID: 7, StartTicks: 8, Exit: platform.Exit{Code: -1, Signal: syscall.Signal(9), CoreDumped: true},
		Usage: platform.Usage{User: 1, System: 2, MaxRSS: 3}, Order: 4, At: time.Unix(5, 6), Lost: "why",
	}
	m := message{
		Kind: kindRuns, Version: 1, Oldest: 2, Generation: 3, KeeperPID: 4, Files: []int{5}, Seq: 6, Count: 7, Mark: 1<<63 - 1, Error: "e", Code: 12,
		ID: "a", Token: "o/a", Pipes: 2, PID: 9, StartTicks: 10, DeadlineMS: 11, Exe: []byte("/\xff"), Exit: toBody(exit),
		Runs: []runBody{{ID: "b", Token: "o/b", Pipes: 1, PID: 2, StartTicks: 3, Pending: true, Exit: toBody(exit), Mark: 4, Pidfd: true}},
		Will: &willBody{Lock: true, Exe: []byte("/\xff"), GoodExe: []byte("/b"), Told: true, StopAtNS: 5, Carry: map[string]string{"a": "b"}}, Estate: 12, Pidfds: true,
	}
	for _, v := range []any{m, m.Runs[0], *m.Exit, *m.Will} {
		for i := range reflect.ValueOf(v).NumField() {
			if reflect.ValueOf(v).Field(i).IsZero() {
				t.Errorf("%T.%s is not tested", v, reflect.TypeOf(v).Field(i).Name)
			}
		}
	}
	b, err := encode(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, m) {
		t.Errorf("got %+v, want %+v", got, m)
	}
	if !reflect.DeepEqual(got.Exit.exit(), exit) {
		t.Errorf("got %+v, want %+v", got.Exit.exit(), exit)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"nothing":       ``,
		"no JSON":       `hello`,
		"no object":     `[]`,
		"no kind":       `{"id":"a"}`,
		"no id":         `{"kind":"settled"}`,
		"id with slash": `{"kind":"settled","id":"../a"}`,
		"long id":       `{"kind":"settled","id":"` + strings.Repeat("x", maxID+1) + `"}`,
		"long token":    `{"kind":"register","id":"a","token":"` + strings.Repeat("x", maxToken+1) + `"}`,
		"many pipes":    `{"kind":"register","id":"a","pipes":17}`,
		"minus pipes":   `{"kind":"register","id":"a","pipes":-1}`,
		"pid 1":         `{"kind":"spawned","id":"a","pid":1,"start_ticks":1}`,
		"group pid":     `{"kind":"spawned","id":"a","pid":-5,"start_ticks":1}`,
		"no ticks":      `{"kind":"spawned","id":"a","pid":5}`,
		"exit of none":  `{"kind":"exit"}`,
		"run of none":   `{"kind":"runs","runs":[{"pipes":1}]}`,
		"minus in run":  `{"kind":"runs","runs":[{"id":"a","pipes":-1}]}`,
		"wrong type":    `{"kind":"settled","id":1}`,
		"deadline":      `{"kind":"shutdown","deadline_ms":-1}`,
	} {
		if m, err := parse([]byte(s)); err == nil {
			t.Errorf("%s: %+v, want an error", name, m)
		}
	}
	if _, err := parse([]byte(`{"kind":"future","new":{"a":[1]},"version":99}`)); err != nil {
		t.Errorf("unknown kind and field: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"kind":"hello","version":1,"oldest":1,"files":[4]}`))
	f.Add([]byte(`{"kind":"runs","seq":1,"runs":[{"id":"a","token":"o/a","pipes":2,"exit":{"id":"a","code":3,"order":1,"at_ns":5}}]}`))
	f.Add([]byte(`{"kind":"spawned","id":"a","pid":5,"start_ticks":18446744073709551615}`))
	f.Add([]byte(`{"kind":"register","id":"a","token":"a","pipes":16,"seq":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		n := 0
		for _, r := range m.Runs {
			if r.Pipes < 0 || r.PID < 0 {
				t.Errorf("run %+v", r)
			}
			n += r.descriptors()
			r.Exit.exit()
		}
		if n > maxFDs || m.Pipes < 0 || m.Pipes > maxPipes || m.PID < 0 {
			t.Errorf("message %+v", m)
		}
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parse(out); err != nil || !reflect.DeepEqual(again, m) && len(m.Files)+len(m.Runs)+len(m.Exe) > 0 {
			t.Errorf("again %+v (%v), want %+v", again, err, m)
		}
	})
}

// Pages hold at most 64 runs, 240 descriptors and a message's bytes.
func TestPage(t *testing.T) {
	many := make([]runBody, 200)
	for i := range many {
		many[i] = runBody{ID: "a", Pipes: 2}
	}
	wide := make([]runBody, 200)
	for i := range wide {
		wide[i] = runBody{ID: "a", Pipes: maxPipes}
	}
	small := func(runBody) int { return 50 }
	worst := runBody{ID: strings.Repeat("\x01", maxID), Token: strings.Repeat("\x01", maxToken), Exit: toBody(&Exit{ID: strings.Repeat("\x01", maxID), Lost: lostStart})}
	size := func(r runBody) int { b, _ := json.Marshal(r); return len(b) }
	for name, tc := range map[string]struct {
		runs []runBody
		size func(runBody) int
		want int
	}{
		"none":  {nil, small, 0},
		"runs":  {many, small, maxRuns},
		"pipes": {wide, small, maxFDs / maxPipes},
		"bytes": {many, func(runBody) int { return 4095 }, 7},
		"huge":  {[]runBody{worst, worst, worst}, size, 2},
	} {
		if got := page(tc.runs, tc.size); got != tc.want {
			t.Errorf("%s: %d runs, want %d", name, got, tc.want)
		}
	}
	if _, err := encode(message{Kind: kindRuns, Seq: 1<<64 - 1, Runs: []runBody{worst, worst}}); err != nil {
		t.Error(err)
	}
}

func TestAgree(t *testing.T) {
	version, oldest := protocols()
	for _, tc := range []struct {
		theirs, oldest, want int
	}{{version, oldest, version}, {version + 6, oldest, version}, {version + 6, version + 1, 0}, {oldest - 1, oldest - 1, 0}, {0, 0, 0}} {
		got, err := agree(tc.theirs, tc.oldest)
		if got != tc.want || (err != nil) != (tc.want == 0) || err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("agree(%d, %d) = %d, %v, want %d", tc.theirs, tc.oldest, got, err, tc.want)
		}
	}
}

func TestQueue(t *testing.T) {
	q := newQueue[int]()
	done := make(chan struct{})
	go func() { q.deliver(); close(q.out); close(done) }() // ends by finish
	for i := range 1000 {
		q.put(i) // nobody takes yet
	}
	q.finish()
	want := 0
	for got := range q.out {
		if got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
		want++
	}
	if want != 1000 {
		t.Errorf("%d values, want 1000", want)
	}
	<-done
	q = newQueue[int]()
	q.put(1)
	go func() { q.stop() }()
	q.deliver() // ends though nobody takes
}
