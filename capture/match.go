package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A Query says what to wait for.
type Query struct {
	// Pattern is literal text, or an RE2 expression with Regex, in which ^ and
	// $ match at lines. It may not be empty.
	Pattern string
	Regex   bool
	// Raw matches the bytes as they are. Otherwise terminal escapes and
	// carriage returns are taken out first.
	Raw bool
	// Sources are the streams to look at; nil = both.
	Sources []Source
	// From is where to begin, 0 for a stream that is not in it.
	From map[Source]int64
}

// Found is a match. Its offsets are those of the raw bytes; escapes that were
// taken out within it are in the range.
type Found struct {
	Source Source `json:"source"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Text   string `json:"text"`
}

const (
	scanChunk = 128 << 10
	// MatchSpan bounds what a match looks back on: a literal may not be longer,
	// and of a longer match of an expression Found tells the last so many bytes.
	MatchSpan = 64 << 10
)

// Match waits until the pattern is in the output. It looks at what is there
// first, needs no newline, and a match wins over the end. The error is
// ErrEndedBeforeMatch when the output ended, and the context's cause when ctx
// did. Bytes that were not kept are passed over. It is not slowed by how much
// it has seen: each byte is looked at once.
func (l *Log) Match(ctx context.Context, q Query) (Found, error) {
	scans, err := l.register(q)
	if err != nil {
		return Found{}, err
	}
	defer func() {
		for _, sc := range scans {
			sc.unregister()
		}
	}()
	var bells []<-chan struct{}
	for {
		dry, ended := true, true
		for _, sc := range scans {
			found, state, err := sc.step()
			if err != nil || found != nil {
				return deref(found), err
			}
			dry = dry && state != scanMoved
			ended = ended && state == scanEnded
		}
		switch {
		case !dry:
			bells = nil
			if ctx.Err() != nil {
				return Found{}, context.Cause(ctx)
			}
		case ended:
			return Found{}, ErrEndedBeforeMatch
		case bells == nil: // look once more with the bells in hand
			for _, sc := range scans {
				bells = append(bells, sc.s.Bell())
			}
		default:
			select {
			case <-bells[0]:
			case <-bells[len(bells)-1]: // there are one or two
			case <-ctx.Done():
				return Found{}, context.Cause(ctx)
			}
			bells = nil
		}
	}
}

func deref(f *Found) Found {
	if f == nil {
		return Found{}
	}
	return *f
}

// register makes a scan for each stream, so that the pump knows of it before it looks.
func (l *Log) register(q Query) ([]*scan, error) {
	sources := q.Sources
	if len(sources) == 0 {
		sources = []Source{Stdout, Stderr}
	}
	var scans []*scan
	for i, src := range sources {
		if src > Stderr || i > 0 && sources[0] == src || i > 1 {
			return nil, fmt.Errorf("match: bad sources %v", sources)
		}
		e, err := newEngine(q)
		if err != nil {
			return nil, err
		}
		sc := &scan{s: l.streams[src], engine: e, pos: max(q.From[src], 0)}
		if !q.Raw {
			sc.strip = &stripper{}
		}
		scans = append(scans, sc)
	}
	for _, sc := range scans {
		sc.register()
	}
	return scans, nil
}

// An engine finds a pattern in text that comes in pieces.
type engine interface {
	// scan looks at text, of which the first seen bytes were there before, and
	// returns the match, if there is one, as text[i:j]. From keep on the text
	// has to be there the next time. At the end nothing comes behind text.
	scan(text []byte, seen int, end bool) (i, j, keep int, ok bool)
	// reset forgets what was seen: bytes are missing.
	reset()
}

func newEngine(q Query) (engine, error) {
	if q.Pattern == "" {
		return nil, errors.New("match: empty pattern")
	}
	if q.Regex {
		return newRegex(q.Pattern)
	}
	if len(q.Pattern) > MatchSpan {
		return nil, fmt.Errorf("match: pattern of %d bytes, at most %d", len(q.Pattern), MatchSpan)
	}
	return newLiteral(q.Pattern), nil
}

// A scan is a match under way on one stream.
type scan struct {
	s      *Stream
	engine engine
	strip  *stripper // nil = raw
	pos    int64     // the next byte to look at; written under s.mu
	kept   []byte    // text the engine needs again
	marks  []mark    // where the text is in the stream
	ended  bool
}

type scanState uint8

const (
	scanMoved scanState = iota // looked at something
	scanDry                    // nothing there now
	scanEnded
)

// A buffer holds the text of a step. They are pooled, so that a scan that
// waits costs little.
type buffer [MatchSpan + scanChunk]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func (sc *scan) register() {
	s := sc.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scans == nil {
		s.scans = make(map[*scan]struct{})
	}
	s.scans[sc] = struct{}{}
}

func (sc *scan) unregister() {
	s := sc.s
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.scans, sc)
	s.goOn()
}

// step looks at the next chunk.
func (sc *scan) step() (*Found, scanState, error) {
	if sc.ended {
		return nil, scanEnded, nil
	}
	if sc.pos >= sc.s.total.Load() && !sc.over() {
		return nil, scanDry, nil // no buffer for that
	}
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	seen := copy(buf[:], sc.kept)
	n, err := sc.s.ReadAt(buf[seen:seen+scanChunk], sc.pos)
	gap := (*Omitted)(nil)
	switch {
	case errors.As(err, &gap):
		sc.moveTo(gap.To)
		sc.kept, sc.marks = nil, nil
		sc.engine.reset()
		if sc.strip != nil {
			sc.strip.reset()
		}
		return nil, scanMoved, nil
	case err == io.EOF:
		sc.ended = true
		return sc.look(buf[:seen], seen), scanEnded, nil
	case err != nil:
		return nil, scanMoved, fmt.Errorf("match %v: %w", sc.s.src, err)
	case n == 0:
		if sc.over() { // never in use: nothing will come
			sc.ended = true
			return nil, scanEnded, nil
		}
		return nil, scanDry, nil
	}
	end := sc.text(buf[:], seen, n)
	found := sc.look(buf[:end], seen)
	sc.moveTo(sc.pos + int64(n))
	return found, scanMoved, nil
}

// over reports whether nothing will come on the stream any more.
func (sc *scan) over() bool { return sc.s.Ended() || !sc.s.used() && sc.s.log.ended() }

// text turns the n raw bytes at buf[seen:] into text and returns where it ends.
func (sc *scan) text(buf []byte, seen, n int) int {
	raw := buf[seen : seen+n]
	if sc.strip == nil || sc.strip.plain(raw) {
		sc.mark(seen, sc.pos)
		return seen + n
	}
	end := seen
	sc.strip.runs(raw, func(i, j int) {
		sc.mark(end, sc.pos+int64(i))
		end += copy(buf[end:], raw[i:j])
	})
	return end
}

// look asks the engine and keeps what it wants to see again.
func (sc *scan) look(text []byte, seen int) *Found {
	i, j, keep, ok := sc.engine.scan(text, seen, sc.ended)
	if ok {
		f := &Found{Source: sc.s.src, Text: string(text[i:j])}
		f.From = sc.raw(i)
		f.To = f.From
		if j > i {
			f.To = sc.raw(j-1) + 1
		}
		return f
	}
	keep = max(keep, len(text)-MatchSpan)
	sc.kept = append(sc.kept[:0], text[keep:]...)
	if cap(sc.kept) > 4096 && len(sc.kept) < 1024 {
		sc.kept = append([]byte(nil), sc.kept...)
	}
	sc.dropMarks(keep)
	return nil
}

// moveTo notes how far the scan has come, for a pump that waits for it.
func (sc *scan) moveTo(pos int64) {
	sc.s.mu.Lock()
	defer sc.s.mu.Unlock()
	sc.pos = pos
	sc.s.goOn()
}

// ended reports whether every stream in use has ended, and one was in use, or
// nothing can come any more.
func (l *Log) ended() bool {
	l.mu.Lock()
	settled := l.settled
	l.mu.Unlock()
	any, all := false, true
	for _, s := range l.streams {
		if s.used() {
			any, all = true, all && s.Ended()
		}
	}
	return all && (any || settled)
}
