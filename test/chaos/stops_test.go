//go:build linux

package chaos

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// stopPoints are the steps of a stop. At each the run ends as the stop says,
// once.
var stopPoints = []string{"stopping", "observe", "observed", "swept", "settle", "ended", "reaped", "settled"}

// S4-06, S2-29: a death between the steps of a cancel. The stop that is durable
// goes on, and the ending is its.
func TestA7_DeathInAStop(t *testing.T) {
	scripts := map[string]string{
		"obeys":  `echo up; exec sleep 600`,
		"traps":  `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep .02; done`,
		"leaves": `setsid sh -c 'echo $$ >>` + "$RUNS.away" + `; exec sleep 601' & echo up; exec sleep 600`,
	}
	for name, script := range scripts {
		for _, point := range stopPoints {
			for _, who := range []string{"supervisor", "both"} {
				if testing.Short() && who == "both" && name != "obeys" {
					continue
				}
				t.Run(name+"/"+point+"/"+who, func(t *testing.T) { stopAt(t, script, point, who) })
			}
		}
	}
}

func stopAt(t *testing.T, script, point, who string) {
	tr := newTrap(t)
	hello, err := tr.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, err := tr.Start(t.Context(), tr.request(strings.ReplaceAll(script, "$RUNS", tr.runs)))
	if err != nil {
		t.Fatal(err)
	}
	if w, err := tr.WaitOutput(t.Context(), string(a.HandleID), wire.WaitOutput{Pattern: "up"}); err != nil || w.Status != wire.Matched {
		t.Fatalf("%+v, %v", w, err)
	}
	tr.arm(t, point, who)
	c := client.New(client.Config{Socket: tr.socket(), State: tr.state(), Patience: 20 * time.Second})
	defer c.Close()
	done := make(chan error, 1)
	go func() { // ends with the cancel
		_, err := c.Cancel(t.Context(), string(a.HandleID), wire.Cancel{Reason: "enough"})
		for errors.Is(err, client.ErrNoDaemon) {
			_, err = c.Cancel(t.Context(), string(a.HandleID), wire.Cancel{Reason: "enough"})
		}
		done <- err
	}()
	if who == "both" {
		tr.again(t, hello.PID)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w, err := tr.Wait(t.Context(), string(a.HandleID), 0)
	if err != nil {
		t.Fatal(err)
	}
	if !waitFor(5*time.Second, func() bool { return tr.sprung(point) }) {
		t.Fatalf("%s was never reached", point)
	}
	if who != "both" {
		tr.nextGeneration(t, hello.Generation)
	}
	rec := w.Record
	if rec.Stop == nil || rec.Stop.Reason != "enough" || rec.Cause != handles.CauseCancelled {
		t.Errorf("the stop: %+v", rec)
	}
	if rec.Status != handles.Killed && !(who == "both" && rec.Status == handles.Lost) {
		t.Errorf("status %s %q", rec.Status, rec.Error)
	}
	tr.orderly(t)
	tr.nothingLeft(t)
}

// nothingLeft fails if a process of the commands lives.
func (tr *trap) nothingLeft(t *testing.T) {
	t.Helper()
	b, _ := os.ReadFile(tr.runs + ".away")
	all := tr.pids()
	for _, f := range strings.Fields(string(b)) {
		pid, _ := strconv.Atoi(f)
		all = append(all, pid)
	}
	for _, pid := range all {
		if !waitGone(pid, time.Second) {
			t.Errorf("%d (%s) is left", pid, commandOf(pid))
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// Between TERM and KILL: the successor finishes the ladder of a command that
// ignores TERM.
func TestA7_DeathBetweenTermAndKill(t *testing.T) {
	for _, who := range []string{"supervisor", "both"} {
		t.Run(who, func(t *testing.T) {
			tr := newTrap(t)
			hello, err := tr.Hello(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			grace := int64(700)
			req := tr.request(`trap 'echo told >>` + tr.runs + `.told' TERM; echo up; while :; do sleep .02; done`)
			req.GraceMS = &grace
			a, err := tr.Start(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if w, err := tr.WaitOutput(t.Context(), string(a.HandleID), wire.WaitOutput{Pattern: "up"}); err != nil || w.Status != wire.Matched {
				t.Fatalf("%+v, %v", w, err)
			}
			if _, err := tr.Cancel(t.Context(), string(a.HandleID), wire.Cancel{NoWait: true}); err != nil {
				t.Fatal(err)
			}
			if !waitFor(5*time.Second, func() bool { _, err := os.Stat(tr.runs + ".told"); return err == nil }) {
				t.Fatal("no TERM came")
			}
			if who == "both" {
				_ = unix.Kill(tr.cmd.Process.Pid, unix.SIGSTOP)
				_ = syscall.Kill(hello.PID, syscall.SIGKILL)
				_ = unix.Kill(tr.cmd.Process.Pid, unix.SIGKILL)
				tr.again(t, hello.PID)
			} else {
				_ = syscall.Kill(hello.PID, syscall.SIGKILL)
			}
			w, err := tr.Wait(t.Context(), string(a.HandleID), 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if rec := w.Record; rec.Cause != handles.CauseCancelled || rec.Status != handles.Killed && who != "both" || rec.Status == handles.Killed && rec.Signal != "KILL" && !(who == "both" && rec.Signal == "PIPE") { // sh tells of its child
				t.Errorf("%+v", rec)
			}
			tr.orderly(t)
			tr.nothingLeft(t)
		})
	}
}

// Both die between the spawn and its row: the journal has no number for what
// runs. It is found by its token, owned, and can be cancelled.
func TestG23_BothDieBeforeTheSpawnIsRecorded(t *testing.T) {
	for _, point := range []string{"spawned", "told"} {
		t.Run(point, func(t *testing.T) {
			tr := newTrap(t)
			hello, err := tr.Hello(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tr.arm(t, point, "both")
			c := client.New(client.Config{Socket: tr.socket(), State: tr.state(), Patience: 20 * time.Second})
			defer c.Close()
			got := make(chan *wire.Started, 1)
			go func() { // ends with the start
				a, err := insist(t.Context(), c, tr.request(`exec sleep 602`))
				if err != nil {
					t.Error(err)
				}
				got <- a
			}()
			tr.again(t, hello.PID)
			a := <-got
			if a == nil {
				t.FailNow()
			}
			rec, err := tr.Show(t.Context(), string(a.HandleID))
			if err != nil {
				t.Fatal(err)
			}
			if pids := tr.pids(); rec.Status != handles.Running || len(pids) != 1 || rec.PID != pids[0] {
				t.Errorf("pids %v, %+v", pids, rec)
			}
			if _, err := tr.Cancel(t.Context(), string(a.HandleID), wire.Cancel{}); err != nil {
				t.Error(err)
			}
			tr.nothingLeft(t)
			tr.orderly(t)
		})
	}
}
