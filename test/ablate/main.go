// Ablate removes the rules by which a stop decides, one at a time, from a copy
// of the repository, and checks that the tests named beside each rule fail
// without it and pass with it: a rule that nothing notices missing is not kept.
//
//	go run ./test/ablate
//	go run ./test/ablate -quick
//	go run ./test/ablate -only persons-stop-holds -v
//	go run ./test/ablate -list
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

func main() {
	only := flag.String("only", "", "only the rule of this `NAME`")
	quick := flag.Bool("quick", false, "only some of the rules")
	list := flag.Bool("list", false, "print the rules and end")
	verbose := flag.Bool("v", false, "print what the tests say")
	jobs := flag.Int("j", runtime.NumCPU(), "so many rules at a time")
	flag.Parse()
	chosen, err := choose(*only, *quick)
	if err == nil && *list {
		for _, r := range chosen {
			fmt.Printf("%-32s %s\n", r.name, r.says)
		}
		return
	}
	if err == nil {
		err = run(chosen, *jobs, *verbose)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ablate:", err)
		os.Exit(1)
	}
}

func choose(only string, quick bool) (chosen []rule, err error) {
	for _, r := range rules {
		if (only == "" || r.name == only) && (!quick || r.quick) {
			chosen = append(chosen, r)
		}
	}
	if chosen == nil {
		return nil, fmt.Errorf("there is no rule called %q; -list shows them", only)
	}
	return chosen, nil
}

// run checks the rules, each worker in a copy of its own.
func run(chosen []rule, jobs int, verbose bool) error {
	began := time.Now()
	dir, err := os.MkdirTemp("", "ablate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	copies := make(chan *scratch, jobs)
	for range min(jobs, len(chosen)) {
		s, err := newScratch(dir)
		if err != nil {
			return err
		}
		copies <- s
	}
	first := <-copies
	err = first.allPass(chosen)
	copies <- first
	if err != nil {
		return err
	}
	failed := make([]error, len(chosen))
	var workers sync.WaitGroup
	for i, r := range chosen {
		s := <-copies
		workers.Go(func() { // ends with its rule
			defer func() { copies <- s }()
			start, say := time.Now(), ""
			say, failed[i] = s.without(r)
			if failed[i] == nil {
				fmt.Printf("ok    %-32s %d tests fail without it (%.1f s)\n", r.name, len(r.tests), time.Since(start).Seconds())
			} else {
				fmt.Printf("KEPT  %-32s %v\n", r.name, failed[i])
			}
			if verbose {
				fmt.Print(say)
			}
		})
	}
	workers.Wait()
	fmt.Printf("%d rules in %v\n", len(chosen), time.Since(began).Round(time.Second))
	return errors.Join(failed...)
}
