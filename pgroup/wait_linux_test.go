package pgroup

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

func init() { helpers["waiting"] = waiting }

// waiting starts many commands that wait, and says how many threads that takes.
func waiting([]string) int {
	sub, err := BecomeSubreaper(true)
	if err != nil {
		return 1
	}
	var groups []*Group
	var wg sync.WaitGroup
	for range 500 {
		g, err := Start(Command{Path: "/bin/sleep", Args: []string{"sleep", "1000"}}, Config{Containment: Tree, Subreaper: sub})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		groups = append(groups, g)
	}
	tasks, _ := os.ReadDir("/proc/self/task")
	fmt.Println("threads", len(tasks))
	for _, g := range groups {
		_ = g.Signal(syscall.SIGKILL)
	}
	for _, g := range groups {
		wg.Go(func() { g.Reap() })
	}
	wg.Wait()
	return 0
}

func TestFiveHundredWaitOnFewThreads(t *testing.T) {
	clean(t)
	p := launch(t, plain.config(t), self("waiting"))
	if n := p.number("threads"); n > 20 {
		t.Errorf("%d threads, want at most 20", n)
	}
	<-p.Done()
	if end := p.reap(); end.Exit != (platform.Exit{}) {
		t.Errorf("helper ended by %+v", end.Exit)
	}
}

// Neither a Stop in its grace nor a Finish that waits may poll.
func TestWaitingDoesNotPoll(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		leader := sh(t, m, immune)
		leader.line("ready")
		next := make(chan struct{})
		quiet(t, "Stop", func() { leader.Stop(Ladder{Grace: time.Minute, Settle: 5 * time.Second}, next) }, next)
		leader.reap()
	})
	in(t, allModes, func(t *testing.T, m mode) {
		left := sh(t, m, `sh -c 'trap "" TERM; echo ready; exec sleep 1000' & exit 0`)
		left.line("ready")
		<-left.Done()
		next := make(chan struct{})
		quiet(t, "Finish", func() { left.Finish(Wait, 0, Ladder{Grace: -1, Settle: 5 * time.Second}, next) }, next)
		left.reap()
	})
}

// quiet runs f until next and counts what this process does meanwhile.
func quiet(t *testing.T, what string, f func(), next chan<- struct{}) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	usage := func() (ru unix.Rusage) { _ = unix.Getrusage(unix.RUSAGE_SELF, &ru); return ru }
	var switches int64
	var cpu time.Duration
	for range 5 { // a busy machine may still be on the way to the wait
		time.Sleep(50 * time.Millisecond)
		before := usage()
		time.Sleep(200 * time.Millisecond) // what is measured
		after := usage()
		switches = after.Nvcsw - before.Nvcsw
		cpu = time.Duration(after.Utime.Nano() - before.Utime.Nano() + after.Stime.Nano() - before.Stime.Nano())
		if switches < 60 && cpu < 20*time.Millisecond {
			break
		}
	}
	if switches >= 60 || cpu >= 20*time.Millisecond {
		t.Errorf("%s: %d context switches and %v of CPU in 200 ms", what, switches, cpu)
	}
	next <- struct{}{}
	<-done
}
