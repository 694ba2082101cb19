//go:build linux

package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

var soakFor = flag.Duration("soak", 0, "full load with kills for so `long`; fails unless the end is as the beginning")

// A sample is what the daemon takes, and how quick it is, at one moment of a
// soak.
type sample struct {
	at                         time.Duration
	done                       int64
	supervisorKiB, keeperKiB   int
	supervisorFDs, keeperFDs   int
	supervisorThrs, keeperThrs int
	hello, start               time.Duration // median since the last sample
}

// A soaked daemon, and what is counted while it works.
type soaked struct {
	*daemon
	done, kills, keeperKills atomic.Int64
	mu                       sync.Mutex
	hellos, starts           []time.Duration
}

// Memory, descriptors, threads and latency after a long time at full load, with
// mixed work and kills of both processes, are what they were after a tenth of it.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("-soak 10m runs it")
	}
	s := &soaked{daemon: startDaemon(t, shortDir(t))}
	ctx, stop := context.WithTimeout(context.Background(), *soakFor)
	defer stop()
	var workers sync.WaitGroup
	for k := range 4 {
		workers.Go(func() { s.works(t, ctx, k) })
	}
	for k := range 2 {
		workers.Go(func() { s.takes(t, ctx, k) })
	}
	workers.Go(func() { s.sessions(t, ctx) })
	workers.Go(func() { s.knocks(t, ctx) })
	samples := s.attend(t, ctx)
	workers.Wait()
	t.Logf("%d commands, %d kills of the supervisor, %d of the keeper", s.done.Load(), s.kills.Load(), s.keeperKills.Load())
	report(t, samples)
}

// attend kills now and then and takes samples, always the same time after a kill.
func (s *soaked) attend(t *testing.T, ctx context.Context) (samples []sample) {
	began, round := time.Now(), 2*time.Second
	for n := 1; ctx.Err() == nil; n++ {
		hello, err := s.Hello(ctx)
		if err != nil {
			break
		}
		if n%10 == 0 {
			s.killKeeper(t, hello)
			s.keeperKills.Add(1)
		} else if err := syscall.Kill(hello.PID, syscall.SIGKILL); err == nil {
			s.kills.Add(1)
		}
		select {
		case <-time.After(round): // of full load
		case <-ctx.Done():
			return samples
		}
		if one, err := s.sample(t, began); err == nil {
			samples = append(samples, one)
		}
	}
	return samples
}

func (s *soaked) sample(t *testing.T, began time.Time) (sample, error) {
	t.Helper()
	hello, err := s.Hello(t.Context())
	if err != nil {
		return sample{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := sample{
		at: time.Since(began), done: s.done.Load(),
		supervisorKiB: resident(t, hello.PID), keeperKiB: resident(t, hello.KeeperPID),
		supervisorFDs: descriptors(t, hello.PID), keeperFDs: descriptors(t, hello.KeeperPID),
		supervisorThrs: statusField(t, hello.PID, "Threads:"), keeperThrs: statusField(t, hello.KeeperPID, "Threads:"),
		hello: middle(s.hellos), start: middle(s.starts),
	}
	s.hellos, s.starts = nil, nil
	return one, nil
}

func middle[T int | time.Duration](list []T) T {
	if len(list) == 0 {
		return 0
	}
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)/2]
}

func (s *soaked) timed(to *[]time.Duration, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*to = append(*to, time.Since(began))
}

// knocks asks for hello on a connection of its own each time.
func (s *soaked) knocks(t *testing.T, ctx context.Context) {
	for tick := time.Tick(20 * time.Millisecond); ctx.Err() == nil; <-tick {
		c := client.New(client.Config{Socket: s.socket(), State: s.state(), Patience: 20 * time.Second})
		began := time.Now()
		_, err := c.Hello(ctx)
		s.timed(&s.hellos, began)
		c.Close()
		if err != nil && ctx.Err() == nil {
			t.Errorf("hello: %v", err)
			return
		}
	}
}

// works starts commands that write, checks their output and their ends, and
// follows some while they run.
func (s *soaked) works(t *testing.T, ctx context.Context, k int) {
	for i := 0; ctx.Err() == nil; i++ {
		w := work{n: k*10_000_000 + i, lines: 1 + rand.IntN(400), code: rand.IntN(100), slow: i%8 == 0}
		req := w.request()
		req.Idempotency = fmt.Sprintf("soak-%d", w.n)
		began := time.Now()
		a, err := s.asked(req)
		if err != nil {
			t.Errorf("start: %v", err)
			return
		}
		s.timed(&s.starts, began)
		switch i % 16 {
		case 1:
			err = s.Output(context.Background(), string(a.HandleID), wire.OutputQuery{Follow: true}, io.Discard, nil, nil)
		case 2:
			_, err = s.Cancel(context.Background(), string(a.HandleID), wire.Cancel{})
		}
		if err != nil {
			t.Errorf("%s: %v", a.HandleID, err)
			return
		}
		got, err := s.Wait(context.Background(), string(a.HandleID), 0)
		if err == nil && got.Record.Status != handles.Interrupted && got.Record.Status != handles.Lost && got.Record.Cause == "" {
			err = w.check(a, got.Record)
		}
		if err != nil {
			t.Errorf("%s: %v", a.HandleID, err)
			return
		}
		s.done.Add(1)
	}
}

func (s *soaked) asked(req wire.Start) (*wire.Started, error) {
	a, err := s.Start(context.Background(), req)
	for errors.Is(err, handles.ErrOutcomeUnknown) {
		a, err = s.Start(context.Background(), req)
	}
	return a, err
}

// takes starts commands of which it takes and acknowledges each end.
func (s *soaked) takes(t *testing.T, ctx context.Context, k int) {
	c := client.New(client.Config{Socket: s.socket(), State: s.state(), Session: fmt.Sprintf("takes%d", k), Patience: 20 * time.Second})
	defer c.Close()
	owed, given := map[handles.ID]bool{}, map[handles.ID]bool{}
	for ctx.Err() == nil || len(owed) > 0 {
		if ctx.Err() == nil {
			for range 4 {
				req := wire.Start{Command: []string{"/bin/sh", "-c", "exit 3"}, Env: []string{"PATH=/usr/bin:/bin"}, Session: fmt.Sprintf("takes%d", k), Idempotency: client.NewKey()}
				a, err := s.asked(req)
				if err != nil {
					t.Errorf("start: %v", err)
					return
				}
				owed[a.HandleID] = true
			}
		}
		b, err := c.Take(context.Background(), wire.Take{WaitMS: 20_000})
		if err == nil && b.Count == 0 {
			err = fmt.Errorf("%d ends are owed and do not come", len(owed))
		}
		if err == nil {
			_, err = c.Acknowledge(context.Background(), "", wire.Acknowledge{Batch: b.Batch})
		}
		if err != nil {
			t.Errorf("take: %v", err)
			return
		}
		for _, x := range b.Completions {
			if given[x.HandleID] {
				t.Errorf("%s was given again after it was acknowledged", x.HandleID)
			}
			given[x.HandleID] = true
			delete(owed, x.HandleID)
			s.done.Add(1)
		}
	}
}

// sessions opens one after the other, with a scope and commands in it, and ends
// them.
func (s *soaked) sessions(t *testing.T, ctx context.Context) {
	for ctx.Err() == nil {
		name := handles.NewSessionName()
		c := client.New(client.Config{Socket: s.socket(), State: s.state(), Session: name, Patience: 20 * time.Second})
		_, err := c.OpenSession(context.Background(), wire.OpenSession{Name: name})
		if err == nil {
			_, err = c.OpenScope(context.Background(), "g", "")
		}
		for i := 0; i < 4 && err == nil; i++ {
			req := wire.Start{Command: []string{"/bin/sleep", "600"}, Session: name, Idempotency: client.NewKey()}
			if i%2 == 0 {
				req.Scope = "g"
			}
			_, err = s.asked(req)
		}
		if err == nil {
			_, err = c.CancelScope(context.Background(), "g", wire.EndSession{})
		}
		if err == nil {
			_, err = c.CloseSession(context.Background(), name, wire.EndSession{})
		}
		if err == nil {
			if _, err = c.DeleteSession(context.Background(), name, wire.EndSession{}); errors.Is(err, handles.ErrNotFound) {
				err = nil // its answer was lost
			}
		}
		c.Close()
		if err != nil {
			t.Errorf("session %s: %v", name, err)
			return
		}
		s.done.Add(4)
	}
}

// report prints the samples and compares the last tenth with the first, by their
// medians.
func report(t *testing.T, all []sample) {
	t.Helper()
	n := max(1, len(all)/10)
	if len(all) < 20 {
		t.Fatalf("%d samples, too few to compare", len(all))
	}
	table := "    time     done  superv. KiB  fds thr   keeper KiB  fds thr   hello      start\n"
	for i := 0; i < len(all); i += max(1, len(all)/30) {
		x := all[i]
		table += fmt.Sprintf("%8s %8d %12d %4d %3d %12d %4d %3d   %-10s %s\n", x.at.Round(time.Second), x.done, x.supervisorKiB, x.supervisorFDs, x.supervisorThrs,
			x.keeperKiB, x.keeperFDs, x.keeperThrs, x.hello.Round(10*time.Microsecond), x.start.Round(10*time.Microsecond))
	}
	t.Log("\n" + table)
	for _, m := range []struct {
		what  string
		of    func(sample) int
		slack int // besides half of what it was: rounds differ by what is under way
	}{
		{"supervisor's memory, KiB", func(x sample) int { return x.supervisorKiB }, 8 << 10},
		{"keeper's memory, KiB", func(x sample) int { return x.keeperKiB }, 1 << 10},
		{"supervisor's descriptors", func(x sample) int { return x.supervisorFDs }, 20},
		{"keeper's descriptors", func(x sample) int { return x.keeperFDs }, 20},
		{"supervisor's threads", func(x sample) int { return x.supervisorThrs }, 4},
		{"keeper's threads", func(x sample) int { return x.keeperThrs }, 4},
		{"latency of hello, µs", func(x sample) int { return int(x.hello.Microseconds()) }, 3000},
		{"latency of start, µs", func(x sample) int { return int(x.start.Microseconds()) }, 10_000},
	} {
		of := func(part []sample) int {
			var list []int
			for _, x := range part {
				list = append(list, m.of(x))
			}
			return middle(list)
		}
		first, last := of(all[:n]), of(all[len(all)-n:])
		t.Logf("%-26s %8d → %8d", m.what, first, last)
		if last > first+first/2+m.slack {
			t.Errorf("%s: %d in the first tenth, %d in the last", m.what, first, last)
		}
	}
}
