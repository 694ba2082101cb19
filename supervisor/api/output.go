package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"procsup/capture"
	"procsup/handles"
	"procsup/supervisor"
	"procsup/supervisor/wire"
)

var errorType = reflect.TypeFor[handles.Error]()

// outputInput is the query of an output read.
type outputInput struct {
	Ref
	Source string `query:"source" enum:"stdout,stderr" default:"stdout"`
	From   int64  `query:"from" doc:"offset; negative: so many bytes before the present end"`
	Limit  int64  `query:"limit" minimum:"0" doc:"at most so many bytes; 0 = all"`
	Follow bool   `query:"follow" doc:"go on until the stream ends"`
	Stop   string `query:"stop" enum:"gap,end" default:"end" doc:"gap: end the answer where bytes are omitted; go on at trailer Procsup-Next"`
}

func (d *Door) output(a huma.API) {
	o := get(a, wire.PathOutput, "output", "The bytes of one stream, raw")
	integer := &huma.Schema{Type: "integer", Format: "int64"}
	o.Responses["200"] = &huma.Response{
		Description: "The bytes. Trailers: " + wire.TrailerNext + ", the offset to go on at, and " + wire.TrailerOmitted + ", the ranges left out (100-200,300-400). An answer without its trailers is broken off.",
		Content:     map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}},
		Headers: map[string]*huma.Param{
			wire.HeaderFrom:   {Schema: integer, Description: "offset of the first byte"},
			wire.HeaderTotal:  {Schema: integer, Description: "bytes written when the answer began"},
			wire.HeaderHandle: {Schema: &huma.Schema{Type: "string"}, Description: "the whole id"},
		},
	}
	huma.Register(a, o, func(ctx context.Context, in *outputInput) (*huma.StreamResponse, error) {
		s, err := d.server()
		if err != nil {
			return nil, err
		}
		rec, err := s.Show(ctx, in.H, in.Session) // errors come before the first byte
		if err != nil {
			return nil, fail(err)
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			r, w := humago.Unwrap(hc)
			stream(r.Context(), s, in, rec, w)
		}}, nil
	})
	huma.Register(a, get(a, wire.PathIndex, "index", "When which bytes of both streams came"),
		func(ctx context.Context, in *Ref) (*reply[wire.Index], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			recs, err := s.Index(ctx, in.H, in.Session)
			return answer(&wire.Index{Entries: entries(recs)}, err)
		})
}

func entries(recs []capture.Record) []wire.IndexEntry {
	out := make([]wire.IndexEntry, 0, len(recs))
	for _, r := range recs {
		out = append(out, wire.IndexEntry{
			Source: r.Source.String(), From: r.Off, To: r.End(), MonoNS: int64(r.Mono), WallNS: r.Wall.UnixNano(), Omitted: r.Omitted,
		})
	}
	return out
}

var errGap = errors.New("the answer ends at a gap")

// A part is one answer of bytes on its way out.
type part struct {
	w      http.ResponseWriter
	ctl    *http.ResponseController
	stop   bool // at the first gap
	follow bool
	begun  bool
	off    int64
	gaps   []string
	end    context.CancelFunc
}

// stream writes bytes of one stream. What goes wrong before the first byte is
// answered; later the connection is broken off, so that nobody takes a part for
// the whole.
func stream(ctx context.Context, s Backend, in *outputInput, rec *handles.Record, w http.ResponseWriter) {
	total := written(rec, in.Source)
	from := in.From
	if from < 0 {
		from = max(0, total+from)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &part{w: w, ctl: http.NewResponseController(w), stop: in.Stop == "gap", follow: in.Follow, off: from, end: cancel}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set(wire.HeaderHandle, string(rec.HandleID))
	h.Set(wire.HeaderFrom, strconv.FormatInt(from, 10))
	h.Set(wire.HeaderTotal, strconv.FormatInt(total, 10))
	h.Set("Trailer", wire.TrailerNext+", "+wire.TrailerOmitted)
	src := capture.Stdout
	if in.Source == "stderr" {
		src = capture.Stderr
	}
	want := supervisor.OutputRange{Source: src, From: from, Limit: in.Limit, Follow: in.Follow}
	if in.Follow {
		want.Opened = func() { p.begun = p.ctl.Flush() == nil } // the client knows that it is attached
	}
	err := s.Output(ctx, string(rec.HandleID), in.Session, want, p, p.gap)
	switch {
	case err == nil, p.stop && len(p.gaps) > 0:
		if !p.begun {
			w.WriteHeader(http.StatusOK)
		}
		h.Set(wire.TrailerNext, strconv.FormatInt(p.off, 10))
		if p.gaps != nil {
			h.Set(wire.TrailerOmitted, strings.Join(p.gaps, ","))
		}
	case !p.begun:
		for name := range h {
			delete(h, name)
		}
		fail(err).write(w)
	default:
		panic(http.ErrAbortHandler)
	}
}

// written is how many bytes there are of a stream.
func written(rec *handles.Record, source string) int64 {
	if rec.Output == nil {
		return 0
	}
	so := rec.Output.Stdout
	if source == "stderr" {
		so = rec.Output.Stderr
	}
	if so == nil {
		return 0
	}
	return so.Bytes
}

func (p *part) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if p.stop && len(p.gaps) > 0 {
		return 0, errGap
	}
	p.begun = true
	n, err := p.w.Write(b)
	p.off += int64(n)
	if err == nil && p.follow {
		err = p.ctl.Flush()
	}
	return n, err
}

// gap notes a range that is left out.
func (p *part) gap(r capture.Range) {
	if p.stop && len(p.gaps) > 0 {
		return
	}
	p.gaps = append(p.gaps, fmt.Sprintf("%d-%d", r.From, r.To))
	p.off = r.To
	if p.stop {
		p.end()
	}
}
