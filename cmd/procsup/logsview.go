package main

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"procsup/handles"
)

// stampFormat is RFC 3339 in UTC to the millisecond, which is how precise it is.
const stampFormat = "2006-01-02T15:04:05.000Z "

// A logView takes bytes of both streams in order and prints them as asked for:
// with times, only the last lines, only head and tail. It is not for concurrent
// use.
type logView struct {
	o       *logsOptions
	out     io.Writer
	errOut  io.Writer
	streams map[string]*viewed
	ring    *lineRing // while only the last lines are wanted
	ends    *headTail // with --max-bytes
	err     error
}

// viewed is one stream in a view.
type viewed struct {
	filter *filter
	line   []byte // begun and not ended, where lines are put together
	at     time.Time
}

func newLogView(o *logsOptions, out, errOut io.Writer) *logView {
	v := &logView{o: o, out: out, errOut: errOut, streams: map[string]*viewed{}}
	for _, s := range o.sources {
		v.streams[s] = &viewed{filter: newFilter(o)}
	}
	if o.tail >= 0 {
		v.ring = &lineRing{max: o.tail}
	}
	if o.maxBytes > 0 {
		v.ends = &headTail{head: o.maxBytes - o.maxBytes/2, tail: o.maxBytes / 2}
	}
	return v
}

// write takes bytes that came at a moment.
func (v *logView) write(source string, b []byte, at time.Time) error {
	s := v.streams[source]
	v.put(s, s.filter.pass(b), at)
	return v.failed()
}

// put prints bytes of a stream, in whole lines where lines of two streams or
// times must not be mixed.
func (v *logView) put(s *viewed, b []byte, at time.Time) {
	if !v.o.timestamps {
		v.emit(b)
		return
	}
	for len(b) > 0 {
		if len(s.line) == 0 {
			s.line, s.at = append(s.line, at.UTC().Format(stampFormat)...), at
		}
		k := bytes.IndexByte(b, '\n')
		if k < 0 {
			s.line = append(s.line, b...)
			return
		}
		v.emit(append(s.line, b[:k+1]...))
		s.line, b = s.line[:0], b[k+1:]
	}
}

func (v *logView) emit(b []byte) {
	switch {
	case v.ring != nil:
		v.ring.add(b)
	case v.ends != nil:
		v.raw(v.ends.add(b))
	default:
		v.raw(b)
	}
}

func (v *logView) raw(b []byte) {
	if len(b) == 0 || v.err != nil {
		return
	}
	if _, err := v.out.Write(b); err != nil {
		v.err = &writeError{err}
	}
}

func (v *logView) failed() error { return v.err }

// gap says at its place that bytes are missing.
func (v *logView) gap(source string, g handles.Range) {
	s := v.streams[source]
	v.put(s, s.filter.flush(), s.at)
	if v.ring == nil {
		sayGap(v.errOut, source, g)
	}
}

// now prints what was kept for the end: what comes from now on is new.
func (v *logView) now() error {
	if v.ring != nil {
		for _, l := range v.ring.last() {
			v.raw(l)
		}
		v.ring = nil
	}
	return v.err
}

// end prints what was held back. A line without its newline stays so, unless
// another follows.
func (v *logView) end() error {
	for _, name := range v.o.sources {
		s := v.streams[name]
		v.put(s, s.filter.flush(), s.at)
		if len(s.line) > 0 {
			v.emit(append(s.line, '\n'))
			s.line = nil
		}
	}
	if err := v.now(); err != nil {
		return unusable("logs: write: %v", err)
	}
	if v.ends != nil {
		v.raw(v.ends.rest())
	}
	if v.err != nil {
		return unusable("logs: write: %v", v.err)
	}
	return nil
}

// A lineRing keeps the last lines of what it is given.
type lineRing struct {
	max   int
	lines [][]byte // the last one may have no newline yet
	open  bool
}

func (r *lineRing) add(b []byte) {
	for len(b) > 0 {
		k := bytes.IndexByte(b, '\n') + 1
		if k == 0 {
			k = len(b)
		}
		if r.open {
			i := len(r.lines) - 1
			r.lines[i] = append(r.lines[i], b[:k]...)
		} else if r.lines = append(r.lines, bytes.Clone(b[:k])); len(r.lines) > r.max+1 {
			r.lines = r.lines[1:]
		}
		r.open = b[k-1] != '\n'
		b = b[k:]
	}
}

func (r *lineRing) last() [][]byte {
	return r.lines[max(0, len(r.lines)-r.max):]
}

// headTail keeps the end of what it is given and lets the beginning through.
type headTail struct {
	head, tail int64
	cut        int64
	buf        []byte
}

// add returns what of b belongs to the beginning.
func (h *headTail) add(b []byte) []byte {
	n := min(h.head, int64(len(b)))
	h.head -= n
	h.buf = append(h.buf, b[n:]...)
	if over := int64(len(h.buf)) - h.tail; over > h.tail+64<<10 { // not for every byte
		h.cut += over
		h.buf = append(h.buf[:0], h.buf[over:]...)
	}
	return b[:n]
}

// rest is the marker and the end.
func (h *headTail) rest() []byte {
	if over := int64(len(h.buf)) - h.tail; over > 0 {
		h.cut += over
		h.buf = h.buf[over:]
	}
	if h.cut == 0 {
		return h.buf
	}
	return append(fmt.Appendf(nil, "\n[… %d bytes omitted …]\n", h.cut), h.buf...)
}
