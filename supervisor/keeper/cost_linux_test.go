package keeper

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"procsup/platform"
)

// anonymous is a process's anonymous memory in KiB.
func anonymous(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Skip(err) // CONFIG_PROC_PAGE_MONITOR
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == "Anonymous:" {
			return atoi(f[1])
		}
	}
	t.Fatal("no Anonymous in smaps_rollup")
	return 0
}

// The keeper stays under 4 MiB of anonymous memory.
func TestMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's own memory is counted too")
	}
	r := newRig(t, rigConfig{})
	h := r.connected()
	r.do("ready")
	empty := anonymous(t, h.Keeper)
	if empty >= 4<<10 {
		t.Errorf("%d KiB of anonymous memory with no runs, want less than 4096", empty)
	}
	const runs = 1000
	r.do("unmarked")
	for i := range runs {
		r.do("register run%d 2", i)
	}
	full := anonymous(t, h.Keeper)
	for i := range runs {
		r.do("fake run%d", i) // as if it were spawned
	}
	spawned := anonymous(t, h.Keeper)
	r.kill()
	over := anonymous(t, h.Keeper)
	for i := range runs {
		r.do("settled run%d", i)
	}
	r.kill()
	t.Logf("anonymous memory in KiB: %d with no runs, %d with %d registered, %d spawned, %d handed over, %d settled", empty, full, runs, spawned, over, anonymous(t, h.Keeper))
}

// cpu is what all threads of a process have run, in ns (schedstat).
func cpu(t testing.TB, pid int) string {
	t.Helper()
	var out []string
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
		if err != nil {
			t.Skip(err)
		}
		f := strings.Fields(string(b))
		out = append(out, task.Name()+":"+f[0]+":"+f[2])
	}
	return strings.Join(out, " ")
}

// While a supervisor lives the keeper sleeps: commands that start, write and
// end are not its business once they are registered.
func TestIdle(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	h := r.connected()
	r.do("ready")
	const n = 20
	for i := range n {
		r.do("register a%d 1", i)
	}
	for range 20 { // the runtime may still be putting things away
		before := cpu(t, h.Keeper)
		i := 0
		for ; i < n; i++ {
			rep := r.do("spawn a%d sleep 0.02; echo x", i)
			awaitEnd(t, rep.PID)
			r.do("reap a%d", i)
		}
		if cpu(t, h.Keeper) == before {
			return
		}
		for i := range n {
			r.do("settled a%d", i)
			r.do("register a%d 1", i)
		}
	}
	t.Errorf("the keeper runs while nothing is asked of it: %s, command line %s", cpu(t, h.Keeper), platform.CommandLine(h.Keeper, 0))
}

// BenchmarkStart is what a start costs with the keeper: Register, Spawned,
// Settled.
func BenchmarkStart(b *testing.B) {
	r := newRig(b, rigConfig{})
	r.connected()
	r.do("unmarked")
	rep := r.do("bench %d", max(b.N, 1))
	b.ReportMetric(float64(rep.Ticks)/float64(max(b.N, 1)), "ns/start")
}

// BenchmarkRestart is from the kill of a supervisor to its successor's
// hand-over, with 100 runs.
func BenchmarkRestart(b *testing.B) {
	r := newRig(b, rigConfig{})
	r.connected()
	for i := range 100 {
		r.do("register a%d 2", i)
	}
	for b.Loop() {
		r.do("ready")
		r.kill()
	}
}
