package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A spawner runs `true` again and again, with the exit code known to the caller.
type spawner struct {
	name string
	run  func(client int) error
	cpu  func() (time.Duration, error) // of the daemon; nil: there is none
	one  bool                          // for one client only
}

// A tally is what a spawner did with so many clients.
type tally struct {
	wall, cpu time.Duration
	each      []time.Duration
}

var clients = []int{1, 4, 16}

// spawnItem is item 2 of performance.md: starting and reaping through a daemon.
func spawnItem(l *lab) error {
	b, err := l.bare()
	if err != nil {
		return err
	}
	defer b.stop()
	empty, err := l.daemon("")
	if err != nil {
		return err
	}
	defer empty.stop()
	dir, err := l.full()
	if err != nil {
		return err
	}
	full, err := l.daemon(dir)
	if err != nil {
		return err
	}
	defer full.stop()
	all := []spawner{
		{name: "bare: posix_spawn, wait", one: true, run: plain},
		{name: "bare: Go daemon, no journal", run: b.true, cpu: func() (time.Duration, error) { return b.cpu(), nil }},
		{name: "procsup, start + wait", run: empty.true, cpu: empty.cpu},
		{name: "procsup, in front (one call)", run: empty.front, cpu: empty.cpu},
		{name: "procsup, " + strconv.Itoa(*records) + " records", run: full.true, cpu: full.cpu},
	}
	got, err := spawnRounds(all)
	if err != nil {
		return err
	}
	spawnTable(all, got)
	return verbs(l, b, empty)
}

// plain is what the kernel and the runtime take alone.
func plain(int) error {
	p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Env: []string{"PATH=/usr/bin:/bin"}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}

func (b *bare) true(i int) error {
	k, err := b.connection(i)
	if err != nil {
		return err
	}
	job := bareJob{Code: -1}
	if err := k.call("POST", "/run", []string{"true"}, &job); err != nil || job.Code != 0 {
		return fmt.Errorf("bare daemon: code %d: %w", job.Code, err)
	}
	return nil
}

func (d *daemon) true(i int) error {
	a, err := d.connection(i).Start(context.Background(), small("true"))
	if err != nil {
		return err
	}
	w, err := d.connection(i).Wait(context.Background(), string(a.HandleID), 0)
	if err == nil && (w.Record.ExitCode == nil || *w.Record.ExitCode != 0) {
		err = fmt.Errorf("%s: %s %s", a.HandleID, w.Record.Status, w.Record.Error)
	}
	return err
}

func (d *daemon) front(i int) error {
	req, long := small("true"), int64(60_000)
	req.BackgroundMS = &long
	a, err := d.connection(i).Start(context.Background(), req)
	if err == nil && (a.Record == nil || a.Record.ExitCode == nil || *a.Record.ExitCode != 0) {
		err = fmt.Errorf("%s: %s %s", a.HandleID, a.Status, a.Error)
	}
	return err
}

// spawnRounds lets all have their turn, with each number of clients, again and
// again: slices of 5 commands a client, at least 20.
func spawnRounds(all []spawner) (map[string]*tally, error) {
	got := map[string]*tally{}
	for round := range max(2, *rounds/10) {
		for _, n := range clients {
			for _, s := range all {
				if s.one && n > 1 {
					continue
				}
				key := s.name + strconv.Itoa(n)
				if got[key] == nil {
					got[key] = &tally{}
				}
				t, err := s.slice(n, max(20, 5*n))
				if err != nil {
					return nil, fmt.Errorf("%s, %d clients: %w", s.name, n, err)
				}
				if round > 0 { // the first fills caches
					got[key].wall += t.wall
					got[key].cpu += t.cpu
					got[key].each = append(got[key].each, t.each...)
				}
			}
		}
	}
	return got, nil
}

// slice runs count commands with n clients at once.
func (s spawner) slice(n, count int) (t tally, err error) {
	var before time.Duration
	if s.cpu != nil {
		if before, err = s.cpu(); err != nil {
			return t, err
		}
	}
	work := make(chan struct{}, count)
	for range count {
		work <- struct{}{}
	}
	close(work)
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() {
			for range work {
				begin := time.Now()
				rerr := s.run(i)
				took := time.Since(begin)
				mu.Lock()
				t.each = append(t.each, took)
				if rerr != nil {
					err = rerr
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.wall = time.Since(start)
	if s.cpu != nil && err == nil {
		t.cpu, err = s.cpu()
		t.cpu -= before
	}
	return t, err
}

func spawnTable(all []spawner, got map[string]*tally) {
	for _, n := range clients {
		var rows [][]string
		base := got[all[1].name+strconv.Itoa(n)]
		for _, s := range all {
			t := got[s.name+strconv.Itoa(n)]
			if t == nil {
				continue
			}
			count := time.Duration(len(t.each))
			row := []string{s.name, fmt.Sprintf("%.0f", float64(count)/t.wall.Seconds()), ratio(base.wall*count, t.wall*time.Duration(len(base.each))), ms(median(t.each)), ratio(median(t.each), median(base.each)), ms(quantile(t.each, .99))}
			if s.cpu != nil {
				row = append(row, us(t.cpu/count), ratio(t.cpu/count, base.cpu/time.Duration(len(base.each))))
			}
			rows = append(rows, row)
		}
		rows = append(rows, []string{"target (4 clients)", "", "0.75", "", "1.40", "", "", "1.50"})
		table(fmt.Sprintf("2. Starting and reaping `true`, %d clients at once", n), []string{"", "per s", "× daemon", "p50 ms", "× daemon", "p99 ms", "CPU µs", "× daemon"}, rows)
	}
}

// verbs measures `procsup start` and `procsup wait` as processes beside a bare
// client process.
func verbs(l *lab, b *bare, d *daemon) error {
	k, err := b.connection(0)
	if err != nil {
		return err
	}
	var job bareJob
	if err := k.call("POST", "/run", []string{"true"}, &job); err != nil {
		return err
	}
	a, err := d.Start(context.Background(), small("true"))
	if err != nil {
		return err
	}
	where := []string{"--socket", d.socket(), "--state", d.state()}
	procsup := func(verb string, rest ...string) []string {
		return append(append([]string{l.procsup, verb}, where...), rest...)
	}
	rows := []struct {
		name string
		argv []string
		wall []time.Duration
	}{
		{name: "bare client, start", argv: []string{l.goclient, b.socket, "POST", "/start", `["true"]`}},
		{name: "procsup start -- true", argv: procsup("start", "--", "true")},
		{name: "bare client, wait", argv: []string{l.goclient, b.socket, "GET", "/wait/" + strconv.Itoa(job.ID)}},
		{name: "procsup wait H", argv: procsup("wait", string(a.HandleID))},
	}
	for i := range *rounds + 3 {
		for k := range rows {
			cmd := exec.Command(rows[k].argv[0], rows[k].argv[1:]...)
			begin := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", strings.Join(rows[k].argv, " "), err, out)
			}
			if i >= 3 {
				rows[k].wall = append(rows[k].wall, time.Since(begin))
			}
		}
	}
	var out [][]string
	for k, r := range rows {
		row := []string{r.name, ms(median(r.wall)), ms(quantile(r.wall, .99)), "-"}
		if k%2 == 1 {
			row[3] = ratio(median(r.wall), median(rows[k-1].wall))
		}
		out = append(out, row)
	}
	out = append(out, []string{"target", "", "", "1.30"})
	table(fmt.Sprintf("2. A verb as a process (%d interleaved rounds)", *rounds), []string{"", "p50 ms", "p99 ms", "× bare"}, out)
	return nil
}
