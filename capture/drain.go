package capture

import (
	"context"
	"time"
)

// Drain waits, after the command's leader has ended, for what is still to come
// through the pipes: until all are at their end, until no byte has come for
// idle, or until max has passed, however busy a process that kept one open may
// be. The pumps then take what is in the pipes at that moment and stop, the
// streams end, and complete says whether every pipe was at its end. When ctx
// ends first it stops at once. While the pipes wait for a follower (Config.Window)
// no time passes: what is in them is not lost to it. A call with no pipes returns
// true.
func (l *Log) Drain(ctx context.Context, idle, max time.Duration) (complete bool) {
	l.mu.Lock()
	l.settled = true
	pumps := l.pumps
	l.mu.Unlock()
	all := make(chan struct{})
	go func() { // ends with the pumps, which stop below
		defer close(all)
		for _, p := range pumps {
			<-p.done
		}
	}()
	awaitQuiet(ctx, all, l.held, l.LastActivity, idle, max)
	undo := context.AfterFunc(ctx, l.hurry)
	l.stop()
	undo()
	<-all
	for _, p := range pumps {
		if !p.eof {
			return false
		}
	}
	return true
}

// Yield stops the pumps, after they have taken what is in the pipes at that
// moment, and closes the pipes, for a process that ends while another one, which
// has them too, goes on with the log. No stream ends by it: a reader is not told
// that it has everything.
func (l *Log) Yield() {
	l.hurry()
	l.halt()
	l.index.mu.Lock()
	l.index.flush(l.now())
	l.index.mu.Unlock()
	l.LetGo()
}

// awaitQuiet returns when done is closed, ctx ends, max has passed, or idle has
// passed since the call and since last; max and idle begin anew while held.
func awaitQuiet(ctx context.Context, done <-chan struct{}, held func() bool, last func() time.Time, idle, max time.Duration) {
	begin := time.Now()
	cap := time.NewTimer(max)
	defer cap.Stop()
	quiet := time.NewTimer(idle)
	defer quiet.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-cap.C:
			if !held() {
				return
			}
			cap.Reset(max)
		case <-quiet.C:
			if held() {
				quiet.Reset(idle)
				continue
			}
			from := begin
			if t := last(); t.After(from) {
				from = t
			}
			left := idle - time.Since(from)
			if left <= 0 {
				return
			}
			quiet.Reset(left)
		}
	}
}
