package main

import (
	"bytes"
	"context"
	"errors"
	"time"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// readLogs reads what there is in the order written, then what comes.
func readLogs(r *remote, o *logsOptions, v *logView) error {
	next := map[string]int64{}
	if len(o.sources) == 1 && !o.timestamps && o.tail < 0 {
		return readOne(r, o, v, o.sources[0], o.from, o.follow)
	}
	index, err := r.Index(context.Background(), o.ref)
	if err != nil {
		return err
	}
	m := &merger{r: r, o: o, v: v, feeds: map[string]*feed{}}
	defer m.stop()
	for _, src := range o.sources {
		from := o.from
		if o.tail >= 0 {
			if from, err = lastLines(r, o.ref, src, o.tail); err != nil {
				return err
			}
		}
		m.open(src, from)
	}
	if err := m.inOrder(index); err != nil {
		return err
	}
	if err := v.now(); err != nil || !o.follow {
		return err
	}
	for src, f := range m.feeds {
		next[src] = f.off
	}
	return followAll(r, o, v, next)
}

// sink gives the bytes of one stream to the view as they arrive.
type sink struct {
	v      *logView
	source string
}

func (s sink) Write(b []byte) (int, error) {
	if err := s.v.write(s.source, b, time.Now()); err != nil {
		return 0, err
	}
	return len(b), nil
}

func readOne(r *remote, o *logsOptions, v *logView, source string, from int64, follow bool) error {
	q := wire.OutputQuery{Source: source, From: from, Follow: follow}
	return r.Output(context.Background(), o.ref, q, sink{v, source}, nil, func(g handles.Range) { v.gap(source, g) })
}

// A piece is bytes of a stream at an offset, or a gap.
type piece struct {
	source string
	off    int64
	b      []byte
	gap    *handles.Range
	err    error // the stream's end: nil when it is whole
	end    bool
}

// followAll prints both streams as they arrive.
func followAll(r *remote, o *logsOptions, v *logView, from map[string]int64) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := make(chan piece)
	for _, src := range o.sources {
		q := wire.OutputQuery{Source: src, From: from[src], Follow: true}
		go pump(ctx, r, o.ref, q, c) // ends with the stream or with ctx
	}
	for open := len(o.sources); open > 0; {
		p := <-c
		switch {
		case p.end && p.err != nil:
			return p.err
		case p.end:
			open--
		case p.gap != nil:
			v.gap(p.source, *p.gap)
		default:
			if err := v.write(p.source, p.b, time.Now()); err != nil {
				return err
			}
		}
	}
	return nil
}

// pump reads a stream into a channel, piece by piece, until ctx ends.
func pump(ctx context.Context, r *remote, ref string, q wire.OutputQuery, c chan<- piece) {
	give := func(p piece) error {
		p.source = q.Source
		select {
		case c <- p:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	w := writerFunc(func(b []byte) (int, error) {
		if err := give(piece{b: bytes.Clone(b)}); err != nil {
			return 0, err
		}
		return len(b), nil
	})
	err := r.Output(ctx, ref, q, w, func(p wire.OutputPart) { _ = give(piece{off: p.From, b: nil}) }, func(g handles.Range) { _ = give(piece{gap: &g}) })
	_ = give(piece{end: true, err: err})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A feed is one stream in the hands of the merger.
type feed struct {
	c    chan piece
	off  int64 // of what comes next
	rest []byte
	gap  *handles.Range
	done bool
}

// merger puts two streams in the order in which they were written.
type merger struct {
	r     *remote
	o     *logsOptions
	v     *logView
	feeds map[string]*feed
	quit  []context.CancelFunc
}

func (m *merger) stop() {
	for _, cancel := range m.quit {
		cancel()
	}
}

func (m *merger) open(source string, from int64) {
	ctx, cancel := context.WithCancel(context.Background())
	m.quit = append(m.quit, cancel)
	f := &feed{c: make(chan piece), off: from}
	m.feeds[source] = f
	go pump(ctx, m.r, m.o.ref, wire.OutputQuery{Source: source, From: from}, f.c) // ends with the stream or with stop
}

// inOrder prints chunk by chunk as the index says, and then what it does not
// know of.
func (m *merger) inOrder(index []wire.IndexEntry) error {
	for _, f := range m.feeds { // where they begin: the daemon knows, for negative offsets
		p := <-f.c
		if p.end {
			if f.done = true; p.err != nil {
				return p.err
			}
			continue
		}
		f.off = p.off
	}
	var last time.Time
	for _, e := range index {
		if e.Omitted {
			continue
		}
		last = time.Unix(0, e.WallNS)
		if err := m.upTo(e.Source, e.To, last); err != nil {
			return err
		}
	}
	for _, src := range m.o.sources {
		if err := m.upTo(src, 1<<62, last); err != nil {
			return err
		}
	}
	return nil
}

// upTo prints a stream up to an offset.
func (m *merger) upTo(source string, to int64, at time.Time) error {
	f := m.feeds[source]
	if f == nil {
		return nil
	}
	if at.IsZero() {
		at = time.Now()
	}
	for f.off < to {
		if len(f.rest) == 0 {
			if f.done {
				return nil
			}
			p := <-f.c
			switch {
			case p.end:
				f.done = true
				return p.err
			case p.gap != nil:
				m.v.gap(source, *p.gap)
				f.off = p.gap.To
				continue
			}
			f.rest = p.b
		}
		n := min(int64(len(f.rest)), to-f.off)
		if err := m.v.write(source, f.rest[:n], at); err != nil {
			return err
		}
		f.rest, f.off = f.rest[n:], f.off+n
	}
	return nil
}

// lastLines finds where the last n lines of a stream begin, reading it from its
// end in growing windows.
func lastLines(r *remote, ref, source string, n int) (int64, error) {
	for window := int64(64 << 10); ; window *= 4 {
		var buf bytes.Buffer
		begin := int64(0)
		q := wire.OutputQuery{Source: source, From: -window}
		err := r.Output(context.Background(), ref, q, &buf, func(p wire.OutputPart) { begin = p.From }, func(g handles.Range) {
			begin = g.To // lines do not go through a gap
			buf.Reset()
		})
		if err != nil {
			return 0, err
		}
		if off, ok := linesFromEnd(buf.Bytes(), n); ok || begin == 0 || int64(buf.Len()) < window {
			return begin + int64(off), nil
		}
		if window > 1<<40 {
			return 0, errors.New("no end of a line found")
		}
	}
}

// linesFromEnd is where the last n lines of b begin, and whether they are all
// there.
func linesFromEnd(b []byte, n int) (int, bool) {
	if n == 0 {
		return len(b), true
	}
	end := len(b)
	if end > 0 && b[end-1] == '\n' {
		end--
	}
	for ; n > 0; n-- {
		k := bytes.LastIndexByte(b[:end], '\n')
		if k < 0 {
			return 0, false
		}
		if n == 1 {
			return k + 1, true
		}
		end = k
	}
	return 0, false
}
