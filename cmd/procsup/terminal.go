package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"procsup/handles"
	"procsup/platform"
)

// colours reports whether w is a terminal whose user did not ask for plain text
// (no-color.org).
func colours(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && platform.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Colours of a status: what runs, what ended well, what did not.
func colourOf(s handles.Status) string {
	switch s {
	case handles.Completed:
		return "\x1b[32m"
	case handles.Failed, handles.Lost:
		return "\x1b[31m"
	case handles.Killed, handles.Cancelled, handles.Interrupted:
		return "\x1b[33m"
	}
	return "\x1b[36m"
}

// people writes a duration as people do: 340ms, 12s, 3m20s, 2h5m, 3d4h.
func people(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	d = d.Round(time.Hour)
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

const (
	patience  = time.Second // a wait shorter than this says nothing
	clearLine = "\r\x1b[K"
)

// waiting says on a terminal what is waited for and for how long, on one line
// that is gone afterwards. It asks nobody: only the clock moves.
func waiting(w io.Writer, what string) (done func()) {
	if !colours(w) {
		return func() {}
	}
	began, stop := time.Now(), make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() { // ends by done, which waits for it
		first := time.NewTimer(patience)
		defer first.Stop()
		select {
		case <-stop:
			return
		case <-first.C:
		}
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		defer fmt.Fprint(w, clearLine)
		for {
			fmt.Fprintf(w, "%sprocsup: waiting for %s, %s so far", clearLine, plain(what, 60), people(time.Since(began).Truncate(time.Second)))
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		close(stop)
		ended.Wait()
	}
}
