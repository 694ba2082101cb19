//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor"
	"procsup/supervisor/wire"
)

// A2: the leader obeys TERM, a member of its group ignores it.
const faultA2 = `sh -c 'trap "" TERM; echo $$ >pid; while :; do sleep 1; done' & exec sleep 612`

// stubborn waits until the member that ignores TERM has armed itself and told
// its number through the pipe.
func stubborn(t *testing.T, dir string) (pid int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "pid")) // opens when the member does
	if err == nil {
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// A door takes fault A2 into a folder, stops it with a grace of 300 ms once
// ready has returned, and gives its record.
type door func(t *testing.T, dir string, ready func()) *handles.Record

func throughRun(t *testing.T, dir string, ready func()) *handles.Record {
	b := newBench(t)
	cmd := b.command("run", "--json", "--grace", "300ms", "--dir", dir, "--", "sh", "-c", faultA2)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it dies of the command's signal
	var rec handles.Record
	if err := json.Unmarshal(out.Bytes(), &rec); err != nil {
		t.Fatalf("%v in %s", err, out.Bytes())
	}
	return &rec
}

func throughAPI(t *testing.T, dir string, ready func()) *handles.Record {
	b := newBench(t)
	h := b.start("--grace", "300ms", "--dir", dir, "--", "sh", "-c", faultA2)
	ready()
	c := b.client()
	defer c.Close()
	k, err := c.Cancel(t.Context(), h, wire.Cancel{})
	if err != nil || !k.Cancelled {
		t.Fatalf("%+v, %v", k, err)
	}
	return k.Record
}

func throughLibrary(t *testing.T, dir string, ready func()) *handles.Record {
	s, err := supervisor.Open(t.Context(), supervisor.Config{Dir: t.TempDir(), Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	grace := int64(300)
	a, err := s.Start(t.Context(), wire.Start{Command: []string{"sh", "-c", faultA2}, Env: os.Environ(), Dir: dir, GraceMS: &grace})
	if err != nil {
		t.Fatal(err)
	}
	ready()
	k, err := s.Cancel(t.Context(), string(a.HandleID), "", wire.Cancel{})
	if err != nil || !k.Cancelled {
		t.Fatalf("%+v, %v", k, err)
	}
	return k.Record
}

// S2-40, A2: every door ends a command in the same way: TERM to all, KILL at the
// end of the grace to who is left, nothing left, and the same told about it.
func TestS2_40_A2ThroughEveryDoor(t *testing.T) {
	told := map[string]string{}
	for name, through := range map[string]door{"run": throughRun, "api": throughAPI, "library": throughLibrary} {
		dir := t.TempDir()
		if err := syscall.Mkfifo(filepath.Join(dir, "pid"), 0o600); err != nil {
			t.Fatal(err)
		}
		member := 0
		rec := through(t, dir, func() { member = stubborn(t, dir) })
		if st, err := platform.ReadStat(member); err == nil && st.Alive() {
			t.Errorf("%s: the member %d lives", name, member)
		}
		var signals []string
		for _, sent := range rec.Cleanup.Signals {
			if n := len(signals); n == 0 || signals[n-1] != sent.Signal {
				signals = append(signals, sent.Signal)
			}
		}
		ladder := strings.Join(signals, " ")
		if !strings.HasPrefix(ladder, "TERM") || !strings.HasSuffix(ladder, "KILL") || len(rec.Cleanup.Survivors) != 0 {
			t.Errorf("%s: %+v", name, rec.Cleanup)
		}
		if took := rec.Cleanup.Signals[len(rec.Cleanup.Signals)-1].AtMS - rec.Cleanup.Signals[0].AtMS; took < 290 {
			t.Errorf("%s: KILL came %v ms after TERM, the grace is 300", name, took)
		}
		told[name] = fmt.Sprintf("%s by %s, signal %s, code %v, graceful %v, ending %s, by %s, answer %s, ladder %s",
			rec.Status, rec.Cause, rec.Signal, rec.ExitCode, rec.Graceful, rec.Ending, rec.Stop.By, rec.Stop.Answer, ladder)
	}
	for name, s := range told {
		if s != told["library"] {
			t.Errorf("%s tells\n%s, the library\n%s", name, s, told["library"])
		}
	}
}
