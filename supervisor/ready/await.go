package ready

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"procsup/pgroup"
)

// A Place is from where conditions are looked at. The zero Place is this
// process's own directory and an empty environment.
type Place struct {
	Dir       string // of exec:
	Env       []string
	Subreaper *pgroup.Subreaper // of this process, if it is one: for exec:
	Files     *Files            // shared; nil: one is made for each wait
	Once      bool              // only look: ErrNotNow instead of waiting
}

// ErrNotNow says that a condition did not hold when it was looked at once.
var ErrNotNow = errors.New("it does not hold now")

// Between two tries.
const (
	firstPause = time.Millisecond
	lastPause  = 100 * time.Millisecond
	// share of the time waited that a pause may take: a port that opens within
	// the first 100 ms is seen within 6 ms.
	share = 16
)

// pause is how long to wait until the next try.
func pause(waited time.Duration) time.Duration {
	return min(max(waited/share, firstPause), lastPause)
}

// errHolds is what a try says that was to find nothing.
var errHolds = errors.New("it still holds")

// Await returns nil once the condition holds, or with gone once it does not. It
// tells tried why it did not so far, after each try; tried may be nil. When ctx
// ends, the error is its cause.
func (p *Place) Await(ctx context.Context, c Cond, gone bool, tried func(error)) error {
	if tried == nil {
		tried = func(error) {}
	}
	if c.OfRun() {
		return fmt.Errorf("condition %s: only of a run: procsup start --ready", c)
	}
	if c.Kind == File {
		return p.awaitFile(ctx, c.Path, gone, tried)
	}
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := p.try(ctx, c)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if gone && err == nil {
			err = errHolds
		} else if gone {
			err = nil
		}
		if err == nil {
			return nil
		}
		tried(err)
		if p.Once {
			return ErrNotNow
		}
		timer.Reset(pause(time.Since(began)))
	}
}

// try looks once.
func (p *Place) try(ctx context.Context, c Cond) error {
	switch c.Kind {
	case TCP:
		return tryTCP(ctx, c)
	case Unix:
		return tryUnix(ctx, c.Path)
	case HTTP:
		return tryHTTP(ctx, c)
	case Exec:
		return p.tryExec(ctx, c.Command)
	}
	return fmt.Errorf("condition %s cannot be tried", c)
}

// An Unmet is a condition that did not hold in time, and why.
type Unmet struct {
	Cond Cond
	Why  error // nil: it was not tried to its end
}

// AwaitAll waits for all conditions, or with any for one. Otherwise it returns
// what has not held, and why it ended: the context's cause, or ErrNotNow.
func (p *Place) AwaitAll(ctx context.Context, conds []Cond, any, gone bool) ([]Unmet, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		i   int
		err error
	}
	var mu sync.Mutex
	why := make([]error, len(conds))
	answers := make(chan answer, len(conds))
	var tasks sync.WaitGroup
	for i, c := range conds {
		tasks.Go(func() { // ends when the condition holds, or with ctx; waited for below
			answers <- answer{i, p.Await(ctx, c, gone, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				why[i] = err
			})}
		})
	}
	held := make([]bool, len(conds))
	met, cause := 0, error(nil)
	for n := 0; n < len(conds) && cause == nil && !(any && met > 0); n++ {
		select {
		case a := <-answers:
			if held[a.i] = a.err == nil; held[a.i] {
				met++
			}
		case <-ctx.Done():
			cause = context.Cause(ctx)
		}
	}
	cancel()
	tasks.Wait()
	if met == len(conds) || any && met > 0 {
		return nil, nil
	}
	if cause == nil {
		cause = ErrNotNow
	}
	var unmet []Unmet
	for i, c := range conds {
		if !held[i] {
			unmet = append(unmet, Unmet{c, why[i]})
		}
	}
	return unmet, cause
}
