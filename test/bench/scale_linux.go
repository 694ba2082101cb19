package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// An extent is what a daemon is like with so many idle commands.
type extent struct {
	n                       int
	pss, rss, keeper, anon  int // KiB; keeper: PSS, anon: of the keeper
	fds, keeperFDs, threads int
	idleCPU                 time.Duration
	idleSwitches            int
	list, start, stop, each time.Duration
	restStart, restStop     time.Duration // of the empty daemon, in turn
}

// scale is item 6 of performance.md: many idle commands with capture.
func scale(l *lab) error {
	if err := startTimes(l); err != nil {
		return err
	}
	d, err := l.daemon("")
	if err != nil {
		return err
	}
	defer d.stop()
	rest, err := l.daemon("")
	if err != nil {
		return err
	}
	defer rest.stop()
	var sizes []extent
	for _, n := range []int{0, 1000, most()} {
		s, err := measure(d, rest, n)
		if err != nil {
			return fmt.Errorf("%d idle: %w", n, err)
		}
		sizes = append(sizes, s)
	}
	scaleTable(sizes)
	return nil
}

// most is how many commands the target asks for here.
func most() int {
	var lim unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
	return min(*idle, 10_000, (int(lim.Max)-500)/3-1) // and the one that is started and stopped
}

// startTimes is how long the daemon takes to start.
func startTimes(l *lab) error {
	dir, err := l.full()
	if err != nil {
		return err
	}
	var none, full []time.Duration
	var rss, anon int
	for range 5 {
		d, err := l.daemon("")
		if err != nil {
			return err
		}
		none = append(none, d.up)
		if rss == 0 {
			supervisor, keeper, err := d.pids()
			if err != nil {
				return err
			}
			time.Sleep(2 * time.Second)
			rss, anon = status(supervisor, "status", "VmRSS"), status(keeper, "smaps_rollup", "Anonymous")
		}
		if err := d.stop(); err != nil {
			return err
		}
		if d, err = l.daemon(dir); err != nil {
			return err
		}
		full = append(full, d.up)
		if err := d.stop(); err != nil {
			return err
		}
	}
	table("6. The daemon alone", []string{"", "", "target"}, [][]string{
		{"start, no record, ms", ms(median(none)), ""},
		{fmt.Sprintf("start, %d finished records, ms", *records), ms(median(full)), "300"},
		{"idle: supervisor RSS, MiB", mibOf(rss), "25"},
		{"idle: keeper anonymous, MiB", mibOf(anon), "4"},
	})
	return nil
}

func mibOf(kib int) string { return fmt.Sprintf("%.1f", float64(kib)/1024) }

// measure starts what is missing to n idle commands and looks.
func measure(d, rest *daemon, n int) (s extent, err error) {
	ctx := context.Background()
	h, err := d.Hello(ctx)
	if err != nil {
		return s, err
	}
	s.n = n
	began := time.Now()
	if err := startIdle(d, n-h.Live); err != nil {
		return s, err
	}
	if n > h.Live {
		s.each = time.Since(began) / time.Duration(n-h.Live)
	}
	time.Sleep(3 * time.Second) // the runtime gives back what it does not need, at leisure
	s.look(h.PID, h.KeeperPID)
	cpu, ran := processCPU(h.PID)+processCPU(h.KeeperPID), switches(h.PID)+switches(h.KeeperPID)
	time.Sleep(5 * time.Second)
	s.idleCPU, s.idleSwitches = processCPU(h.PID)+processCPU(h.KeeperPID)-cpu, switches(h.PID)+switches(h.KeeperPID)-ran
	var lists, starts, stops, restStarts, restStops []time.Duration
	for range 5 {
		begin := time.Now()
		list, err := d.List(ctx, client.Filter{Live: true})
		if err == nil && len(list.Handles) < n {
			err = fmt.Errorf("%d are there", len(list.Handles))
		}
		if err != nil {
			return s, fmt.Errorf("list of %d: %v", n, err)
		}
		lists = append(lists, time.Since(begin))
	}
	for range max(20, *rounds/2) {
		for _, one := range []struct {
			d             *daemon
			starts, stops *[]time.Duration
		}{{d, &starts, &stops}, {rest, &restStarts, &restStops}} {
			a, b, err := startStop(one.d)
			if err != nil {
				return s, err
			}
			*one.starts, *one.stops = append(*one.starts, a), append(*one.stops, b)
		}
	}
	s.list, s.start, s.stop, s.restStart, s.restStop = median(lists), median(starts), median(stops), median(restStarts), median(restStops)
	return s, nil
}

func (s *extent) look(supervisor, keeper int) {
	s.pss, s.rss = status(supervisor, "smaps_rollup", "Pss"), status(supervisor, "status", "VmRSS")
	s.keeper, s.anon = status(keeper, "smaps_rollup", "Pss"), status(keeper, "smaps_rollup", "Anonymous")
	s.fds, s.keeperFDs = descriptors(supervisor), descriptors(keeper)
	s.threads = status(supervisor, "status", "Threads") + status(keeper, "status", "Threads")
}

// startIdle starts n sleepers over 8 connections.
func startIdle(d *daemon, n int) (err error) {
	work := make(chan struct{}, max(n, 0))
	for range n {
		work <- struct{}{}
	}
	close(work)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range work {
				a, serr := d.connection(i).Start(context.Background(), small("sleep", "100000"))
				if serr == nil && a.PID == 0 {
					serr = errors.New(a.Error)
				}
				if serr != nil {
					mu.Lock()
					err = serr
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return err
}

// startStop is how long one command takes to start and to be stopped.
func startStop(d *daemon) (start, stop time.Duration, err error) {
	ctx := context.Background()
	begin := time.Now()
	a, err := d.Start(ctx, small("sleep", "1000"))
	if err != nil {
		return 0, 0, err
	}
	start = time.Since(begin)
	begin = time.Now()
	c, err := d.Cancel(ctx, string(a.HandleID), wire.Cancel{})
	if err == nil && !c.Cancelled {
		err = fmt.Errorf("cancel %s: %+v", a.HandleID, c)
	}
	return start, time.Since(begin), err
}

func scaleTable(sizes []extent) {
	none := sizes[0]
	head := []string{""}
	rows := [][]string{}
	add := func(name, target string, cell func(s extent) string) {
		row := []string{name}
		for _, s := range sizes {
			row = append(row, cell(s))
		}
		rows = append(rows, append(row, target))
	}
	per := func(a, b, n int) string {
		if n == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f", float64(a-b)/float64(n))
	}
	for _, s := range sizes {
		head = append(head, strconv.Itoa(s.n)+" idle")
	}
	add("ms a start (8 at once)", "", func(s extent) string { return ms(s.each) })
	add("supervisor PSS, MiB", "", func(s extent) string { return mibOf(s.pss) })
	add("supervisor RSS, MiB", "", func(s extent) string { return mibOf(s.rss) })
	add("supervisor KiB a handle", "16", func(s extent) string { return per(s.rss, none.rss, s.n) })
	add("keeper PSS, MiB", "", func(s extent) string { return mibOf(s.keeper) })
	add("keeper anonymous, MiB", "4 with none", func(s extent) string { return mibOf(s.anon) })
	add("descriptors a handle", "3", func(s extent) string { return per(s.fds, none.fds, s.n) })
	add("… in the keeper", "2", func(s extent) string { return per(s.keeperFDs, none.keeperFDs, s.n) })
	add("threads, both", "30", func(s extent) string { return strconv.Itoa(s.threads) })
	add("CPU in 5 s idle, µs", "0", func(s extent) string { return us(s.idleCPU) })
	add("switches in 5 s idle", "0", func(s extent) string { return strconv.Itoa(s.idleSwitches) })
	add("list of all, ms", "100", func(s extent) string { return ms(s.list) })
	add("start, p50 ms", "", func(s extent) string { return ms(s.start) })
	add("× an empty daemon's", "1.30", func(s extent) string { return ratio(s.start, s.restStart) })
	add("stop, p50 ms", "", func(s extent) string { return ms(s.stop) })
	add("× an empty daemon's", "1.30", func(s extent) string { return ratio(s.stop, s.restStop) })
	table("6. Idle commands with capture", append(head, "target"), rows)
}
