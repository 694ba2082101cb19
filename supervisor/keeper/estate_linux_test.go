package keeper

import (
	"encoding/json"
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
			ID: "a", Token: "o/a", Gen: 1, Pipes: []int{7}, Mark: 1<<63 - 1, Since: 9, PID: 10, Ticks: 11,
			PipeIDs: []fileID{{1, 2}}, Pidfd: 12, PidfdID: &fileID{3, 4}, Adopted: true, Stranger: true, Pending: true, Exit: exit,
		}},
	}
	for _, v := range []any{e, e.Runs[0]} {
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
		"pipe ids":   `{"format":1,"generation":1,"runs":[{"id":"a","pipes":[1,2],"pipe_ids":[{"dev":1,"ino":1}]}]}`,
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

// In the place of a pipe for which there was no descriptor is one at its end.
func TestEstateWithHoles(t *testing.T) {
	before := len(openFDs())
	pipes := noHoles([]int{-1, dup(0)})
	if len(pipes) != 2 {
		t.Fatalf("pipes %v", pipes)
	}
	if n, err := unix.Read(pipes[0], make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("read %d, %v, want the end of file", n, err)
	}
	closeAll(pipes)
	if got := openFDs(); len(got) != before {
		t.Errorf("%d descriptors, before %d: %s", len(got), before, strings.Join(got, "\n"))
	}
}
