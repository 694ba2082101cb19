package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// S1-13, S1-15, S1-16: events of a plain run go to a file or a FIFO; a reader
// that stops slows nobody, and what it missed is exact.
func TestS1_15_EventsOfAPlainRun(t *testing.T) {
	b := newBench(t)
	for _, n := range []string{"0", "-1", "x"} {
		b.want(exitUsage, "run", "--events", n, "--", "true")
	}
	var rec handles.Record
	if out := b.want(0, "run", "--events", "1", "--json", "--", "echo", "hi"); json.Unmarshal([]byte(out), &rec) != nil || rec.Events == nil || rec.Events.Total < 3 || rec.Events.Dropped != rec.Events.Total-1 {
		t.Errorf("nobody reads: %+v", rec.Events)
	}
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	r := b.run("run", "--events-to", file, "--", "sh", "-c", "echo hi; exit 2")
	es := readEvents(t, file)
	if r.code != 2 || r.out != "hi\n" || es[0].Kind != wire.EventStarted || es[1].Kind != wire.EventOutput || es[1].To != 3 || es[len(es)-1].Status != handles.Failed {
		t.Errorf("exit %d, %q, %+v", r.code, r.out, es)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := b.command("run", "--events", "8", "--events-to", fifo, "--result", filepath.Join(dir, "rec"), "--", "sh", "-c", `i=0; while read x; do echo $x; done`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for i := range 40 { // with nobody at the FIFO
		fmt.Fprintln(in, i)
		if l, err := lines.ReadString('\n'); l != fmt.Sprintln(i) {
			t.Fatal(l, err)
		}
	}
	in.Close()
	es = readEvents(t, fifo)
	_ = cmd.Wait()
	data, err := os.ReadFile(filepath.Join(dir, "rec"))
	if err := json.Unmarshal(data, &rec); err != nil {
		t.Fatal(err, string(data))
	}
	var sum, delivered int64
	for _, e := range es {
		if sum += e.Dropped; e.Kind != wire.EventOverflow {
			delivered++
		}
	}
	if err != nil || sum == 0 || sum != rec.Events.Dropped || delivered+sum != rec.Events.Total {
		t.Errorf("delivered %d, gaps %d, record %+v", delivered, sum, rec.Events)
	}
	began := time.Now() // nobody comes at all: the run ends nevertheless, S1-17
	if r := b.run("run", "--events-to", fifo, "--json", "--", "true"); json.Unmarshal([]byte(r.out), &rec) != nil || r.code != 0 || rec.Events.Dropped != rec.Events.Total || rec.Status != handles.Completed {
		t.Errorf("no reader: exit %d, %s", r.code, r.out)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("it took %v", d)
	}
}

func readEvents(t testing.TB, path string) (es []wire.Event) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var e wire.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err, line)
		}
		es = append(es, e)
	}
	return es
}
