package pgroup

import (
	"os"
	"slices"
	"testing"
	"time"

	"procsup/platform"
)

// leaves is a leader that ends and leaves one process in its group and one in
// a session of its own.
const leaves = `sh -c 'echo left $$; exec sleep 1000' & setsid sh -c 'echo left $$; exec sleep 1000' & exit 2`

func (p *proc) leftovers() []int {
	p.t.Helper()
	want := []int{p.number("left"), p.number("left")}
	<-p.Done()
	slices.Sort(want)
	return want
}

func pids(ms []Member) []int {
	var out []int
	for _, m := range ms {
		out = append(out, m.PID)
	}
	slices.Sort(out)
	return out
}

func TestLeftoverKill(t *testing.T) {
	in(t, holdsTree, func(t *testing.T, m mode) {
		p := sh(t, m, leaves)
		want := p.leftovers()
		r := p.Finish(Kill, time.Millisecond, long, nil)
		if got := pids(r.Leftovers); !slices.Equal(got, want) {
			t.Errorf("leftovers %v, want %v", got, want)
		}
		wantNone(t, "survivors", r.Survivors)
		if got := sentTo(r); len(got) != 2 || !slices.Contains(got, "TERM group") || !slices.Contains(got, "TERM member") {
			t.Errorf("sent %q, want TERM to group and member", got)
		}
		if end := p.reap(); end.Exit != (platform.Exit{Code: 2}) {
			t.Errorf("leader ended by %+v", end.Exit)
		}
	})
}

func TestLeftoverKillAtGroupLevel(t *testing.T) {
	clean(t)
	p := sh(t, plain, `sh -c 'echo left $$; exec sleep 1000' & exit 2`)
	left := p.number("left")
	r := p.Finish(Kill, 0, long, nil)
	if got := pids(r.Leftovers); !slices.Equal(got, []int{left}) {
		t.Errorf("leftovers %v, want %d", got, left)
	}
	wantSent(t, r, "TERM group")
	p.reap()
}

// waits is a leader whose leftover ends when standard input does.
const waits = `exec 3<&0; sh -c 'echo left; read x; exit 0' <&3 & exit 2`

func startWaits(t *testing.T, m mode) (*proc, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	defer r.Close()
	p := launch(t, m.config(t), Command{Path: "/bin/sh", Args: []string{"sh", "-c", waits}, Stdin: r})
	p.line("left")
	<-p.Done()
	return p, w
}

// awaitSeen waits until the group has looked at its tree and seen a member.
func awaitSeen(t *testing.T, p *proc) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n := len(p.seen)
		p.mu.Unlock()
		if n > 0 {
			return
		}
	}
	t.Fatal("no member was seen")
}

func TestLeftoverWait(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p, w := startWaits(t, m)
		done := make(chan Report)
		go func() { done <- p.Finish(Wait, 0, long, nil) }()
		awaitSeen(t, p)
		select {
		case r := <-done:
			t.Fatalf("did not wait: %+v", r)
		case <-time.After(150 * time.Millisecond): // longer than it takes not to wait
		}
		w.Close()
		r := <-done
		if len(r.Leftovers) != 1 || len(r.Signals) > 0 {
			t.Errorf("%+v, want one leftover and no signal", r)
		}
		wantNone(t, "survivors", r.Survivors)
		p.reap()
	})
}

func TestLeftoverWaitIsHurried(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		for name, linger := range map[string]time.Duration{"while it waits": 0, "while it lingers": time.Minute} {
			p, _ := startWaits(t, m)
			next := make(chan struct{})
			done := make(chan Report)
			go func() { done <- p.Finish(Wait, linger, long, next) }()
			next <- struct{}{}
			r := <-done
			wantSent(t, r, "TERM group")
			if len(r.Leftovers) != 1 || len(r.Survivors) > 0 {
				t.Errorf("%s: %+v", name, r)
			}
			p.reap()
		}
	})
}

func TestLinger(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p, w := startWaits(t, m)
		done := make(chan Report)
		go func() { done <- p.Finish(Kill, time.Minute, long, nil) }()
		w.Close()
		if r := <-done; len(r.Leftovers)+len(r.Signals)+len(r.Survivors) > 0 {
			t.Errorf("%+v, want nothing: it ended within the linger", r)
		}
		p.reap()
	})
}

// Survivors keep their cgroup; nothing else of it stays.
func TestLeftoverKeep(t *testing.T) {
	in(t, holdsTree, func(t *testing.T, m mode) {
		p := sh(t, m, leaves)
		want := p.leftovers()
		r := p.Finish(Keep, time.Millisecond, long, nil)
		if got := pids(r.Leftovers); !slices.Equal(got, want) {
			t.Errorf("leftovers %v, want %v", got, want)
		}
		if len(r.Signals) > 0 {
			t.Errorf("sent %q", sentTo(r))
		}
		path := p.CgroupPath()
		if _, err := p.Reap(); err != nil {
			t.Error(err)
		}
		p.reaped = true
		if ms := p.Members(); len(ms) > 0 {
			t.Errorf("members of a reaped command: %v", ms)
		}
		for _, pid := range want {
			if !alive(pid) {
				t.Errorf("%d was ended", pid)
			}
			st, _ := platform.ReadStat(pid)
			_ = signalMember(st, 9)
			await(t, pid)
		}
		if path != "" { // they were moved out of it, and nothing of it is left
			if cg, err := platform.OpenCgroup(path); err == nil {
				cg.Close()
				t.Errorf("the cgroup %s is left", path)
			}
		}
	})
}
