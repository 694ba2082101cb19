package keeper

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Every field crosses to the next program.
func TestEstateRoundTrip(t *testing.T) {
	exit := toBody(&Exit{ID: "a", PID: 7, StartTicks: 8, Order: 4, At: time.Unix(5, 6), Lost: "why"})
	e := estate{
		Format: 1, Generation: 2, Exits: 3, Told: true, Marks: true, Exe: []byte("/\xff"), GoodExe: []byte("/b"), Upgraded: []byte("/c"),
		StopAtNS: 4, Lock: 5, Files: []int{6}, Carry: map[string]string{"a": "b"},
		Runs: []estateRun{{
			ID: "a", Token: "o/a", Gen: 1, Pipes: []estatePipe{{FD: 7, Ino: 8, Write: true}}, Mark: 1<<63 - 1, Since: 9, PID: 10, Ticks: 11,
			Pidfd: 12, Adopted: true, Stranger: true, Pending: true, Exit: exit,
		}},
	}
	for _, v := range []any{e, e.Runs[0], e.Runs[0].Pipes[0]} {
		for i := range reflect.ValueOf(v).NumField() {
			if f := reflect.TypeOf(v).Field(i); f.IsExported() && reflect.ValueOf(v).Field(i).IsZero() {
				t.Errorf("%T.%s is not tested", v, f.Name)
			}
		}
	}
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseEstate(b); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("got %+v, %v, want %+v", got, err, e)
	}
}

func TestEstateRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"garbage":    `garbage`,
		"newer":      `{"format":2,"generation":1}`,
		"none":       `{}`,
		"generation": `{"format":1}`,
		"id":         `{"format":1,"generation":1,"runs":[{"id":"../a"}]}`,
		"twice":      `{"format":1,"generation":1,"runs":[{"id":"a"},{"id":"a"}]}`,
		"pid":        `{"format":1,"generation":1,"runs":[{"id":"a","pid":-1}]}`,
	} {
		if e, err := parseEstate([]byte(s)); err == nil {
			t.Errorf("%s: %+v, want an error", name, e)
		}
	}
	if _, err := parseEstate([]byte(`{"format":1,"generation":1,"new":[1]}`)); err != nil {
		t.Errorf("unknown field: %v", err)
	}
	if _, err := OpenEstate(-1); err == nil {
		t.Error("OpenEstate(-1): no error")
	}
}

// A pipe that its reader closed before the exec has another's number now: it is
// not taken, and what stands in its place is at its end.
func TestEstateOfClosedPipe(t *testing.T) {
	before := len(openFDs())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	run := estateRun{ID: "a", Pipes: []estatePipe{keepFile(r, false), keepFile(w, true)}}
	if !run.Pipes[1].Write || run.Pipes[0].Write {
		t.Errorf("pipes %+v", run.Pipes)
	}
	r.Close()
	w.Close()
	other, err := os.Open(os.DevNull) // may get one of the numbers
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	run.claimPipes()
	if n, err := unix.Read(run.Pipes[0].FD, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("read %d, %v, want the end of file", n, err)
	}
	if isWriteEnd(run.Pipes[0].FD) || !isWriteEnd(run.Pipes[1].FD) {
		t.Error("the ends are of the wrong kind")
	}
	for _, p := range run.Pipes {
		unix.Close(p.FD)
	}
	if closed := keepFile(r, true); closed.FD != -1 || !closed.Write {
		t.Errorf("a closed one: %+v", closed)
	}
	other.Close()
	if got := openFDs(); len(got) != before {
		t.Errorf("%d descriptors, before %d: %s", len(got), before, strings.Join(got, "\n"))
	}
}
