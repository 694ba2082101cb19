package main

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/supervisor/wire"
)

// eventsMax is how long after the end a reader of events may take nothing
// before what it has not read is given up.
const eventsMax = 2 * time.Second

// events are told of a run while it goes on: kept in a ring, so that a reader
// who stops slows nobody. nil: none are made.
type events struct {
	ring *handles.Ring[wire.Event]
	path string   // of a FIFO that is opened when it has a reader, "" = none
	file *os.File // where they go; nil: nowhere, or not opened yet

	mu  sync.Mutex // makes the order of events; held until the first one, started
	seq int64

	done      chan struct{} // closed when the writer has ended; nil: there is none
	progress  chan struct{} // one value: something was written
	cancel    context.CancelFunc
	written   sync.Mutex
	delivered int64 // events, guarded by written
	over      bool  // what is written from now on does not count, guarded by written
}

// openEvents opens what --events-to names; nothing has run yet.
func openEvents(o *options) (*events, error) {
	if o.events == 0 {
		return nil, nil
	}
	e := &events{ring: handles.NewRing[wire.Event](o.events), progress: make(chan struct{}, 1), cancel: func() {}}
	e.mu.Lock() // started unlocks it: no output comes before that
	if o.eventsTo == "" {
		return e, nil
	}
	st, err := os.Stat(o.eventsTo)
	if err == nil && st.Mode()&os.ModeNamedPipe != 0 {
		e.path = o.eventsTo
	} else if e.file, err = os.OpenFile(o.eventsTo, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644); err != nil {
		return nil, unusable("run: --events-to %s: %v", o.eventsTo, reason(err))
	}
	rd, err := e.ring.Take()
	if err != nil {
		return nil, unusable("run: --events-to %s: %v", o.eventsTo, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel, e.done = cancel, make(chan struct{})
	go e.write(ctx, rd) // ends with the ring, or when it is given up; finish waits for it
	return e, nil
}

// write passes events on at the pace of their reader.
func (e *events) write(ctx context.Context, rd *handles.RingReader[wire.Event]) {
	defer close(e.done)
	if e.path != "" {
		f, err := os.OpenFile(e.path, os.O_WRONLY, 0) // waits for a reader, fifo(7)
		if err != nil {
			return
		}
		e.file = f
	}
	defer e.file.Close()
	for {
		v, missed, err := rd.Next(ctx)
		if missed > 0 && !e.line(wire.Event{Kind: wire.EventOverflow, Dropped: missed}) {
			return
		}
		if err != nil || !e.line(v) {
			return
		}
	}
}

// line writes one event; false when nobody reads, or nothing counts any more.
func (e *events) line(v wire.Event) bool {
	b, err := json.Marshal(v)
	if err != nil {
		panic("marshal event: " + err.Error()) // plain data
	}
	if _, err := e.file.Write(append(b, '\n')); err != nil {
		return false
	}
	e.written.Lock()
	defer e.written.Unlock()
	if e.over {
		return false
	}
	if v.Kind != wire.EventOverflow {
		e.delivered++
	}
	select {
	case e.progress <- struct{}{}:
	default: // one is pending
	}
	return true
}

// put tells an event and waits for nobody.
func (e *events) put(v wire.Event) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.add(v)
}

// started tells the first event.
func (e *events) started() {
	if e == nil {
		return
	}
	defer e.mu.Unlock() // see openEvents
	e.add(wire.Event{Kind: wire.EventStarted, Status: handles.Running})
}

// add is put with e.mu held.
func (e *events) add(v wire.Event) {
	e.seq++
	v.Seq, v.At = e.seq, time.Now().UTC()
	e.ring.Put(v)
}

// captured is told by the capture of each piece of output; it must not wait.
func (e *events) captured(src capture.Source, from, to int64) {
	e.put(wire.Event{Kind: wire.EventOutput, Source: src.String(), From: from, To: to})
}

// finish tells the last event, waits for a reader who goes on reading, and
// counts.
func (e *events) finish(status handles.Status) *handles.Events {
	if e == nil {
		return nil
	}
	e.put(wire.Event{Kind: wire.EventEnded, Status: status})
	e.ring.Close()
	total, dropped := e.ring.Counts()
	if e.done == nil {
		return &handles.Events{Total: total, Dropped: dropped}
	}
	e.await()
	e.cancel()
	e.written.Lock()
	defer e.written.Unlock()
	e.over = true
	return &handles.Events{Total: total, Dropped: total - e.delivered}
}

// await returns when all was read, or the reader has stopped.
func (e *events) await() {
	patience := time.NewTimer(eventsMax)
	defer patience.Stop()
	for {
		select {
		case <-e.done:
			return
		case <-e.progress:
			patience.Reset(eventsMax)
		case <-patience.C:
			return
		}
	}
}
